#!/bin/sh
# zkServer.sh start-foreground: the server, as long as the container lives.
set -eu
exec java ${JVMFLAGS:--Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1} \
    -Dlog4j.configuration=file:/opt/zookeeper/bin/log4j.properties \
    -cp '/opt/zookeeper/lib/*' \
    org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
