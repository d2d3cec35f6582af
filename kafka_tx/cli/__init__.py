"""The kafka-tx command. Owns typer and rich."""
