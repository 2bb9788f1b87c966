#!/bin/sh
# A broker, two boards on it, and two runs. Mosquitto must be installed: apt install mosquitto
set -eu
directory=${1:-my-broker}

# Mosquitto's configuration (certificates, passwords, access list), the store of the keys, and Mosquitto itself.
tern broker config "$directory" ${PORT:+--port "$PORT"}
tern broker run "$directory" &
broker=$!
trap 'kill $broker' EXIT
sleep 2

# Two emulated boards with 50 clients each: they hold keys, records of flights, and a budget of epsilon 4 for life.
tern fleet emulate 2 --clients 100 --budget 4 --broker "$directory" &
fleet=$!
trap 'kill $fleet $broker' EXIT

# Train a model: the run waits for the boards. Then collect means, with what is left of the budget.
tern train --fleet "mqtt:$directory" --epsilon 2 --reports 100 --group 50 --name first
tern collect --fleet "mqtt:$directory" --epsilon 2 --clients 100 --name second

tern runs
