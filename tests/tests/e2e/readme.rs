//! README.md is a program too: its `sh` blocks are run, or, where they call
//! make, checked against the Makefile. A block says who runs it by the comment
//! before it; one that nobody runs fails the test.

use std::process::Command;

use podcradle_tests::e2e::{Actor, Error, Running, WATCHDOG, native, repository};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop, Suite};

pub fn add(suite: &mut Suite) {
    suite.test("readme::every_command_is_one_that_works", every_command);
    suite.test("readme::exit_codes_are_the_programs", exit_codes);
    suite.test("readme::it_names_no_machine", no_machine);
}

/// A fenced block, and who runs it: `<!-- run by: WHO -->` on the line before.
struct Block {
    line: usize,
    by: Option<String>,
    text: String,
}

fn readme() -> Result<String, std::io::Error> {
    std::fs::read_to_string(repository().join("README.md"))
}

fn blocks(text: &str) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    let (mut by, mut inside) = (None, false);
    for (index, line) in text.lines().enumerate() {
        if line == "```sh" {
            inside = true;
            all.push(Block {
                line: index + 1,
                by: by.take(),
                text: String::new(),
            });
        } else if line == "```" {
            inside = false;
        } else if let Some(block) = all.last_mut().filter(|_| inside) {
            block.text.push_str(line);
            block.text.push('\n');
        } else if !line.is_empty() {
            let comment = line.strip_prefix("<!-- run by: ");
            by = comment
                .and_then(|rest| rest.strip_suffix(" -->"))
                .map(str::to_owned);
        }
    }
    all
}

fn every_command() -> Outcome {
    let actor = Actor::new(native())?;
    let blocks = blocks(&readme()?);
    ensure!(blocks.len() >= 3, "only {} blocks were found", blocks.len());
    for block in blocks {
        let ran = match block.by.as_deref() {
            Some("administrator") => shell(&actor, &block, actor.cluster.admin.kubeconfig()),
            Some("launcher") => shell(&actor, &block, actor.kubeconfig()),
            None => make_only(&block),
            Some(other) => Err(Stop::from(format!("nobody is called {other}"))),
        };
        if let Err(Stop::Failed(text)) = ran {
            return Err(Stop::from(format!(
                "README.md, line {}: {text}",
                block.line
            )));
        }
    }
    Ok(())
}

/// Commands that cannot be run from within themselves: make must know them.
fn make_only(block: &Block) -> Outcome {
    for line in block.text.lines() {
        let command = line.split('#').next().unwrap_or_default().trim();
        let Some(target) = command.strip_prefix("make ") else {
            return Err(Stop::from(format!("nobody runs {line:?}")));
        };
        let mut make = Command::new("make");
        make.current_dir(repository())
            .arg("--dry-run")
            .args(target.split(' '));
        Running::start(&mut make)?.wait(WATCHDOG)?.with_code(0)?;
    }
    Ok(())
}

/// The block as a script, with what a reader has: the two programs, a
/// kubeconfig, an image, a server's address.
fn shell(actor: &Actor, block: &Block, kubeconfig: &std::path::Path) -> Outcome {
    let bin = actor.folder().join("bin");
    std::fs::create_dir_all(&bin)?;
    let kubectl = actor.cluster.admin.program();
    for (name, program) in [("podcradle", actor.program()), ("kubectl", kubectl)] {
        let link = bin.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(which(program)?, link)?;
        }
    }
    let path = std::env::var("PATH")?;
    let mut sh = Command::new("sh");
    sh.args(["-eu", "-c", &block.text])
        .current_dir(repository())
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("KUBECONFIG", kubeconfig)
        .env("TMPDIR", actor.folder())
        .env("IMAGE", podcradle_tests::e2e::Cluster::image(actor.arch))
        // Nobody listens there, and a host that reaches nobody tries again.
        .env("SERVER", format!("http://{}:9", actor.cluster.address));
    let ended = Running::start(&mut sh)?.wait(WATCHDOG)?;
    for word in ended.stdout.split_whitespace() {
        if word.starts_with("podcradle-hello-") {
            actor.own(word);
        }
    }
    ended.with_code(0)?;
    Ok(())
}

fn which(program: &std::path::Path) -> Result<std::path::PathBuf, Error> {
    if program.is_absolute() {
        return Ok(program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| Error::Missing(format!("{} is not in PATH", program.display())))
}

/// The README's table against the constants of the program, and the codes that
/// are the system's: success, and 128 and the number of a signal.
fn exit_codes() -> Outcome {
    let source = repository().join("launcher/src/cli/exit.rs");
    let source = std::fs::read_to_string(source)?;
    let constants = source.lines().filter_map(|line| {
        let value = line.strip_prefix("pub const ")?.split_once(": u8 = ")?.1;
        value.trim_end_matches(';').parse::<u8>().ok()
    });
    let mut expected: Vec<u8> = constants.chain([0, 129, 130, 143]).collect();
    expected.sort_unstable();
    let text = readme()?;
    let rows = text.lines().filter_map(|line| {
        let cell = line.strip_prefix("| ")?.split(" | ").next()?;
        cell.parse::<u8>().ok()
    });
    let codes: Vec<u8> = rows.collect();
    ensure!(expected.len() > 3, "no constants were found: {expected:?}");
    ensure!(
        codes == expected,
        "README.md explains {codes:?}, the program has {expected:?}"
    );
    Ok(())
}

fn no_machine() -> Outcome {
    let text = readme()?;
    for path in ["/home/", "/root", "/tmp", "/Users/"] {
        let outside = text
            .lines()
            .find(|line| line.contains(path) && !line.contains("/home/sandbox"));
        ensure!(outside.is_none(), "README.md names {path}: {outside:?}");
    }
    Ok(())
}
