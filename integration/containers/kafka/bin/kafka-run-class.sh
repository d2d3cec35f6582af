#!/bin/sh
# kafka-run-class.sh CLASS [ARGUMENT...]: a class of Kafka's jars, tuned by KAFKA_*.
set -eu
config=/opt/kafka/config
exec java \
    ${KAFKA_HEAP_OPTS:--Xms64m -Xmx384m} \
    ${KAFKA_JVM_PERFORMANCE_OPTS:--XX:+UseSerialGC} \
    -Dlog4j2.configurationFile="$config/log4j2.yaml" \
    -Dlog4j.configuration="file:$config/log4j.properties" \
    ${KAFKA_OPTS:-} \
    -cp '/opt/kafka/libs/*' "$@"
