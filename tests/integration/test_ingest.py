"""The benchmark of ingestion sends reports through a broker, and every report is counted once."""

from benchmarks import ingest


def test_the_benchmark_of_ingestion_loses_and_doubles_no_report():
    result = ingest.run(6_400, batch=32)  # 200 frames
    for mistake in ("lost", "counted_twice", "not_counted", "not_as_sent"):
        assert result[mistake] == 0
    assert result["duplicates"] > 0, "every hundredth frame is sent twice"
    assert result["stored_bytes_per_report"] <= 8
