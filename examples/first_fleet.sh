#!/bin/sh
# A broker, two boards on it, and two runs. Mosquitto must be installed: apt install mosquitto
set -eu
directory=${1:-my-broker}

# Wait until a command that stays has said that it is ready, which it does in one line.
ready() {
    until [ -s "$1" ]; do
        kill -0 "$2"
        sleep 0.2
    done
}

# Mosquitto's configuration (certificates, passwords, access list), the store of the keys, and Mosquitto itself.
tern broker config "$directory" ${PORT:+--port "$PORT"}
tern broker run "$directory" >"$directory/broker.out" &
broker=$!
trap 'kill $broker' EXIT
ready "$directory/broker.out" $broker

# Two emulated boards with 50 clients each: they hold keys, records of flights, and a budget of epsilon 4 for life.
tern fleet emulate 2 --clients 100 --budget 4 --broker "$directory" >"$directory/fleet.out" &
fleet=$!
trap 'kill $fleet $broker' EXIT
ready "$directory/fleet.out" $fleet

# Train a model; then collect means, with what is left of the budget.
tern train --fleet "mqtt:$directory" --epsilon 2 --reports 100 --group 50 --name first
tern collect --fleet "mqtt:$directory" --epsilon 2 --clients 100 --name second

tern runs
