#!/bin/sh
# Runs what it is given, as the entry point of Spark does outside of Kubernetes.
exec "$@"
