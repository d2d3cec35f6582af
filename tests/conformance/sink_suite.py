"""The suite for sinks is a part of the package: here by the name that tests know."""

from kafka_tx.testing.sink_suite import RuleSuite, SinkSuite, attempt

__all__ = ["RuleSuite", "SinkSuite", "attempt"]
