"""The help text of every option that stands in more than one place.

An option's name means one thing, and it has one help text, wherever it stands. `option` takes the
text of a name from here.
"""

HELP = {
    # What clients hold.
    "data": "the records: a data set, my.csv, its schema, or devices:FEATURES[:CLASSES]",
    "by": "column of the table that says which device a record belongs to",
    "time": "column of the table that orders the records of a device",
    "held_out": "share of the records that judge the model, and that no device holds",
    "records": "number of records of a device, at most",
    "clients": "number of clients",
    "devices": "number of devices, or several to try",
    "reports": "number of reports",
    "public": "public rows: a CSV file, a number of rows of the data set, or none",
    "seed": "seed of all random choices but the noise of boards",
    # Privacy.
    "epsilon": "epsilon of one report",
    "epsilons": "classes of devices: epsilon (and clipping bound), and their share",
    "run_epsilon": "epsilon, at --delta, that the whole run spends",
    "delta": "delta of every epsilon that stands for several reports",
    "budget": "lifetime epsilon of what --unit protects",
    "max_epsilon": "largest epsilon of a report that a device accepts",
    "unit": "what is protected: device, record, or a number of records in a row",
    "mechanism": "mechanism that perturbs values; 'tern card list' shows them",
    "card": "card from 'tern card design', instead of a mechanism",
    "k": "number of coordinates in a report",
    "d": "number of coordinates",
    "clip": "clip values to +-2**-R; auto: by what earlier rounds showed",
    "proportions": "relative budgets of the levels, from the lowest values up",
    # Rounds.
    "rounds": "number of rounds",
    "share": "share of the devices that a round asks",
    "every": "time from one to the next: 15m, 1h, 1d, or seconds",
    "silence": "seconds without a message until a board counts as absent",
    # Learning.
    "model": "model to train; softmax is for several classes",
    "rate": "learning rate",
    "threshold": "probability above which label 1 is predicted, costs 1:5, or a share 24%",
    "batch": "records that a step or report uses; 0: all of the device, at most 32 in a step",
    # Simulations.
    "runs": "how often a simulation is repeated, with other random numbers",
    "workers": "number of processes",
    # Places.
    "fleet": "the devices; 'tern fleet kinds' lists the kinds",
    "broker": "directory of the broker, from 'tern broker config'",
    "host": "name or address at which others reach it; for a cluster, one for each node",
    "port": "port to listen on",
    "ids": "ids of devices: a number, or FIRST-LAST",
    "store": "file with the fleet's keys and rounds",
    "name": "name to find it by: that of the run and of its directory in runs",
    "output": "file or directory to write to",
    "plot": "also draw into this file",
    "sessions": "directory in which a new folder gets the results",
    "anew": "abandon what is unfinished, and begin anew; keys and rounds stay",
    # Boards.
    "device": "id of the device, from 1, unique in the fleet",
    "main": "program that becomes main.py, with the modules beside it that it imports",
    "schema": "schema of the data, by which the program makes its records (tern.columns)",
    "module": "also install this module of the device library",
    "log_format": "form of the log on standard error: text for people, or json with an object in each line",
    "yes": "do not ask before changes",
}
