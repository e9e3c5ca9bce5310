"""``detlab demo`` shows what is true of the shipped runs, and says so with its exit code."""

from detlab.cli import main


def test_the_demo_sees_what_is_true_of_the_shipped_runs(tmp_path, capsys):
    report = tmp_path / "report.html"
    assert main(["demo", "-o", str(report)]) == 0
    printed = capsys.readouterr().out
    assert "DIVERGED: kernel: aten.index_put.default in embedding.word_embeddings (backward)" in printed
    assert "race: " in printed
    assert "not seen: no mismatch in 60 trials in this process (1 thread)" in printed
    assert str(report) in printed
    assert report.stat().st_size < 300_000


def test_the_demo_exits_with_1_when_it_does_not_see_it(tmp_path, capsys):
    """One trial can show one result only, so that no race is seen."""
    assert main(["demo", "--trials", "1", "-o", str(tmp_path / "report.html")]) == 1
    assert "did NOT see what it should" in capsys.readouterr().out
