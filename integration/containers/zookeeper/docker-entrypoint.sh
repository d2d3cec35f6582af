#!/bin/sh
# Writes zoo.cfg from ZOO_* variables, once, and runs the command.
set -eu
file=/conf/zoo.cfg
[ -e "$file" ] || cat >"$file" <<END
dataDir=/data
clientPort=2181
tickTime=${ZOO_TICK_TIME:-2000}
initLimit=${ZOO_INIT_LIMIT:-5}
syncLimit=${ZOO_SYNC_LIMIT:-2}
maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}
admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}
4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}
END
exec "$@"
