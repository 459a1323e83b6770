//! The case runner as a person meets it: what it prints, and how it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, ensure};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/cases").join(name)
}

fn run(files: &[&Path]) -> Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_cases")).args(files).output()?)
}

fn stdout(output: &Output) -> Result<String> {
    Ok(String::from_utf8(output.stdout.clone())?)
}

/// The error that the runner gives for a file with this text; it must end with exit code 2.
fn refusal(text: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bad.json");
    fs::write(&file, text)?;
    let output = run(&[&file])?;
    ensure!(output.status.code() == Some(2), "{}", stdout(&output)?);
    let error = String::from_utf8(output.stderr)?;
    Ok(error.replace(&format!("{}/", folder.path().display()), "").trim().to_owned())
}

#[test]
fn cases_that_pass_are_counted_and_nothing_else_is_said() -> Result<()> {
    let output = run(&[&data("all-pass.json")])?;
    assert_eq!((output.status.code(), stdout(&output)?.as_str()), (Some(0), "3 passed, 0 failed, 0 skipped\n"));
    Ok(())
}

#[test]
fn a_failing_case_is_shown_with_what_was_given_expected_and_got() -> Result<()> {
    let output = run(&[&data("some-fail.json"), &data("all-pass.json")])?;
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output)?;
    assert!(text.ends_with("\n5 passed, 2 failed, 2 skipped\n"), "{text}");
    let failed: Vec<&str> = text.lines().filter(|line| line.starts_with("FAILED")).collect();
    assert_eq!(
        failed,
        ["FAILED own-3 (node-evict): expects what is not so", "FAILED own-4 (node-match): expects what no runner says",]
    );
    assert!(text.contains(r#"expected: {"deletions":[{"at":9,"pod":"web"}]}"#), "{text}");
    assert!(text.contains(r#""deletions":[{"at":5.0,"#), "{text}");
    Ok(())
}

#[test]
fn a_file_that_is_not_there_is_named() -> Result<()> {
    let output = run(&[Path::new("no-such-file.json")])?;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr)?.contains("no-such-file.json: cannot be read"));
    Ok(())
}

#[test]
fn a_bad_file_is_refused_with_line_and_field() -> Result<()> {
    insta::assert_snapshot!(refusal("[\n  {\"id\": 7}\n]")?, @r#"cases: bad.json:2:10: not an array of cases: invalid type: integer `7`, expected a string"#);
    insta::assert_snapshot!(refusal("[{\"id\": \"x\", \"kind\": \"alloc\"}]")?, @"cases: bad.json:1:29: not an array of cases: missing field `given`");
    insta::assert_snapshot!(refusal("[{}")?, @"cases: bad.json:1:3: not an array of cases: missing field `id`");
    Ok(())
}

#[test]
fn a_case_that_cannot_be_read_is_refused_with_line_id_and_field() -> Result<()> {
    let case = |given: &str| {
        format!("[\n  {{\n    \"id\": \"x-1\", \"kind\": \"node-match\", \"given\": {given}, \"expect\": {{}}\n  }}\n]")
    };
    insta::assert_snapshot!(refusal(&case("{}"))?, @"cases: bad.json:3: case x-1: given: missing field `toleration`");
    insta::assert_snapshot!(
        refusal("[\n{\"id\": \"x-2\", \"kind\": \"alloc\", \"given\": {}}]")?,
        @"cases: bad.json:2: case x-2: neither expect nor decided is there: nothing would be checked"
    );
    Ok(())
}
