"""The native reader: exact ranges to Arrow through confluent-kafka's own librdkafka.

Optional: built where there was a C compiler, used where ``refusal`` is None. Planners,
which only ask for offsets, import ``library`` and no Arrow.
"""

from kafka_tx.native.library import Status, refusal, status, supports

__all__ = ["Status", "refusal", "status", "supports"]
