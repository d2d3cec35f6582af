"""Spark: data source, listener, engine. Owns pyspark; only here camelCase.

Raises:
    ImportError: PySpark is older than 4.0, which has no Python data sources.
"""

import pyspark

_OLDEST = 4

if int(pyspark.__version__.partition(".")[0]) < _OLDEST:
    msg = (
        "kafka_tx needs PySpark 4.0 or newer, and this is PySpark"
        f" {pyspark.__version__} ({pyspark.__file__}). Older ones have no sources"
        " written in Python: use a newer Spark, or Spark's own format('kafka')."
    )
    raise ImportError(msg, name="pyspark")
