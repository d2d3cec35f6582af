#!/bin/sh
# kafka-server-start.sh FILE: a broker in the foreground, with these properties.
set -eu
for file in /etc/kafka/docker/log4j*; do
    [ -e "/opt/kafka/config/${file##*/}" ] || cp "$file" /opt/kafka/config/
done
exec kafka-run-class.sh kafka.Kafka "$@"
