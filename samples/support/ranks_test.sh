#!/usr/bin/env bash
# What Ranks promises, in two processes.
source "$(dirname "$0")/test.sh"
start_ranks 2
end_ranks "0 0"
echo "two ranks agree"
