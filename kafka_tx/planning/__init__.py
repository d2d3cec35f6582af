"""Decisions on logs: starts, losses, limits, splits and replays."""
