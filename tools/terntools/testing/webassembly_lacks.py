"""The device tests that MicroPython for WebAssembly cannot run, with the reasons."""

FEATURES = {"sockets": "the port has no sockets"}

_BY_REASON = {
    "the port has no littlefs": (
        "test_between_reports.py::test_power_cut_at_every_write_between_two_reports",
        "test_ledger.py::test_power_cut_at_every_write_of_littlefs",
        "test_model.py::test_power_cut_at_every_write_of_the_model",
        "test_recorder.py::test_power_cut_at_every_write_of_littlefs",
        "test_reserve.py::test_paying_ahead_erases_fewer_blocks",
        "test_update_power.py::test_power_cut_at_every_write_of_littlefs",
        "test_update_power.py::test_power_cut_at_every_write_of_a_second_update",
    ),
    "the port's asyncio has no run(): JavaScript runs its tasks": (
        "test_app.py::test_a_node_answers_beside_other_tasks_and_opens_its_link_again",
        "test_app.py::test_pauses_count_from_public_moments_alone_and_begin_anew_after_an_exception",
        "test_app.py::test_once_answers_one_round_and_leaves",
        "test_app.py::test_once_switches_the_radio_off_after_an_error_of_the_link",
        "test_app.py::test_once_ends_in_time_whatever_comes",
    ),
    "viper functions allocate nothing, but do as bytecode": (
        "test_client.py::test_a_report_leaves_little_garbage",
        "test_features.py::test_no_call_allocates",
        "test_gradient.py::test_add_and_finish_allocate_nothing",
        "test_local.py::test_steps_and_the_report_allocate_nothing",
        "test_sampler.py::test_sampling_does_not_allocate",
    ),
    "the port's heap grows": ("test_heap.py::test_the_loop_at_100_dimensions_fits_32_kib",),
    "names of files have to be UTF-8": (
        "test_main.py::test_the_lock_alone_decides_about_the_console_whatever_other_files_there_are",
    ),
}
TESTS = {test: reason for reason, tests in _BY_REASON.items() for test in tests}
