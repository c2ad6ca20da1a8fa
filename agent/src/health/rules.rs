//! The rules of health that a service brings, and the process that evaluates them.
//!
//! An expression comes from whoever writes the service, and may ask for any amount of stack, memory and
//! time. So the agent starts itself once more, as [`WORD`]: that process takes cases from its standard
//! input, answers line by line, and ends. It has no more memory, time and files than `confine` leaves
//! it, and what kills it is an answer, too. Where a service brings no rules nothing of this is started,
//! and its code is not even read into memory.

use std::ffi::OsStr;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use farshore_shared::size::HumanSize;
use farshore_shared::wire::{EXPRESSION_LIMIT, HealthRule};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::{Health, cel, group_and_kind};
use crate::ceiling;
use crate::footprint::PROCESS_MEMORY;

/// The first argument that makes the agent's program evaluate rules and do nothing else.
pub const WORD: &str = "judge-health";
/// The most bytes of cases for one process.
const CASES_LIMIT: usize = 16 << 20;
/// The most bytes of one process's answers.
const ANSWERS_LIMIT: usize = 1 << 20;
/// One process at a time, whichever services ask: each may take all the memory that one has.
static TURN: Semaphore = Semaphore::const_new(1);
/// How long one process may take.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// How many seconds of a processor one process may use.
const CPU_LIMIT: u64 = 5;
/// The stack of the thread that parses: the deepest expression of a debug build needs a quarter of it.
const STACK: usize = 128 << 20;

/// One object and its rule.
#[derive(Debug, Serialize, Deserialize)]
struct Case {
    rule: HealthRule,
    object: Value,
}

/// A [`Health`] on its way between the two processes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Answer {
    Current,
    Progressing(String),
    Failed(String),
}

/// Who evaluates rules: the program of this agent.
#[derive(Debug, Clone)]
pub struct Judges {
    program: PathBuf,
    memory: u64,
}

impl Default for Judges {
    /// The very program that runs, also after its file was replaced.
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), memory: PROCESS_MEMORY }
    }
}

impl Judges {
    /// Another program that has [`answer`] behind [`WORD`].
    #[must_use]
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), ..Self::default() }
    }

    /// From here on, each process has so many bytes of memory.
    pub fn give(&mut self, memory: u64) {
        self.memory = memory;
    }

    /// The health of each object by its rule, in order. What could not be evaluated is in progress.
    pub async fn judge(&self, cases: Vec<(&HealthRule, Value)>) -> Vec<Health> {
        let wanted = cases.len();
        let mut judged = Vec::with_capacity(wanted);
        for (rule, object) in cases {
            if let Some(refused) = refusal(rule) {
                judged.push(refused);
                continue;
            }
            // One process for one object: whatever it does to its process, it does to itself alone.
            let case = Case { rule: rule.clone(), object };
            judged.push(match self.ask(&case).await {
                Ok(answer) => answer.into(),
                Err(why) => Health::progressing(format!("its health rule was not evaluated: {why}")),
            });
        }
        judged
    }

    async fn ask(&self, case: &Case) -> Result<Answer, String> {
        let input = serde_json::to_vec(case).expect("a case has string keys only");
        if input.len() > CASES_LIMIT {
            return Err(format!("object and rule have {} bytes (limit {CASES_LIMIT})", input.len()));
        }
        let _turn = TURN.acquire().await.map_err(|error| error.to_string())?;
        match tokio::time::timeout(TIME_LIMIT, self.run(&input)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("it took longer than {} s", TIME_LIMIT.as_secs())),
        }
    }

    async fn run(&self, input: &[u8]) -> Result<Answer, String> {
        let mut command = Command::new(&self.program);
        command.arg(WORD).arg(self.memory.to_string()).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("starting a process: {error}"))?;
        let (mut stdin, stdout) = child.stdin.take().zip(child.stdout.take()).ok_or("it has no pipes")?;
        let mut answer = Vec::new();
        let fed = async {
            // A process that died reads nothing: how it ended says more.
            let _ = stdin.write_all(input).await;
            drop(stdin);
        };
        let mut stdout = stdout.take(ANSWERS_LIMIT as u64);
        let (read, ()) = tokio::join!(stdout.read_to_end(&mut answer), fed);
        read.map_err(|error| format!("reading its answer: {error}"))?;
        let status = child.wait().await.map_err(|error| format!("waiting for it: {error}"))?;
        match serde_json::from_slice(&answer) {
            Ok(answer) if status.success() => Ok(answer),
            Ok(_) | Err(_) => {
                let memory = HumanSize(self.memory);
                Err(format!("it exceeded its limits of memory ({memory}), time or depth ({status})"))
            }
        }
    }
}

impl From<Answer> for Health {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Current => Self::Current,
            Answer::Progressing(why) => Self::progressing(why),
            Answer::Failed(why) => Self::failed(why),
        }
    }
}

impl From<Health> for Answer {
    fn from(health: Health) -> Self {
        match health {
            Health::Current => Self::Current,
            Health::Progressing(why) => Self::Progressing(why),
            Health::Failed(why) => Self::Failed(why),
        }
    }
}

/// The rule for an object: the first for its group and kind.
#[must_use]
pub fn rule_for<'a>(rules: &'a [HealthRule], group: &str, kind: &str) -> Option<&'a HealthRule> {
    let group_of = |version: &'a str| version.split_once('/').map_or("", |(group, _)| group);
    rules.iter().find(|rule| rule.kind == kind && group_of(&rule.api_version) == group)
}

/// The rule for an object as the API shows it.
#[must_use]
pub fn rule_for_object<'a>(rules: &'a [HealthRule], object: &Value) -> Option<&'a HealthRule> {
    let (group, kind) = group_and_kind(object);
    rule_for(rules, group, kind)
}

/// A publisher bounds expressions; what it let through all the same is not even tried.
fn refusal(rule: &HealthRule) -> Option<Health> {
    let texts = [rule.in_progress.as_deref(), rule.failed.as_deref(), Some(rule.current.as_str())];
    let longest = texts.into_iter().flatten().map(str::len).max().unwrap_or_default();
    (longest > EXPRESSION_LIMIT).then(|| {
        Health::failed(format!("its health rule is too long ({longest} bytes, limit {EXPRESSION_LIMIT})"))
    })
}

/// Whether a program was started to evaluate rules, by its arguments without its name.
#[must_use]
pub fn is_asked(first: Option<&OsStr>) -> bool {
    first.is_some_and(|word| word == WORD)
}

/// Evaluates the case on standard input, answers on standard output, and says how the program ends.
#[must_use]
pub fn answer() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{WORD}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), String> {
    let memory = std::env::args().nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or(PROCESS_MEMORY);
    confine(memory)?;
    let mut input = Vec::new();
    let limit = u64::try_from(CASES_LIMIT).unwrap_or(u64::MAX);
    std::io::stdin().take(limit).read_to_end(&mut input).map_err(|error| error.to_string())?;
    let case: Case = serde_json::from_slice(&input).map_err(|error| format!("reading the case: {error}"))?;
    let thread = std::thread::Builder::new().stack_size(STACK);
    let judged =
        thread.spawn(move || cel::judge(&case.rule, &case.object)).map_err(|error| error.to_string())?;
    let health = judged.join().map_err(|_| "the rule stopped before its end".to_owned())?;
    let mut out = BufWriter::new(std::io::stdout());
    serde_json::to_writer(&mut out, &Answer::from(health)).map_err(|error| error.to_string())?;
    out.flush().map_err(|error| error.to_string())
}

/// Takes from this process what it does not need.
fn confine(memory: u64) -> Result<(), String> {
    ceiling::of_ourselves(memory).map_err(|error| format!("limiting its memory: {error}"))?;
    for (resource, most) in [(Resource::Cpu, CPU_LIMIT), (Resource::Core, 0), (Resource::Fsize, 0)] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(|error| format!("limiting {resource:?}: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(version: &str, kind: &str) -> HealthRule {
        HealthRule {
            api_version: version.into(),
            kind: kind.into(),
            in_progress: None,
            failed: None,
            current: "true".into(),
        }
    }

    #[test]
    fn a_rule_is_for_a_group_and_a_kind_whatever_the_version() {
        let rules = [rule("shop.example/v1", "Till"), rule("v1", "Secret")];
        assert!(rule_for(&rules, "shop.example", "Till").is_some());
        assert!(rule_for(&rules, "", "Secret").is_some());
        assert!(rule_for(&rules, "", "Till").is_none());
        let newer = serde_json::json!({"apiVersion": "shop.example/v2", "kind": "Till"});
        assert!(rule_for_object(&rules, &newer).is_some());
        assert!(rule_for_object(&rules, &Value::Null).is_none());
    }

    #[tokio::test]
    async fn a_rule_that_is_too_long_is_not_tried() {
        let long = HealthRule { current: "x".repeat(EXPRESSION_LIMIT + 1), ..rule("v1", "Secret") };
        let judged = Judges::at("/nowhere").judge(vec![(&long, Value::Null)]).await;
        assert!(matches!(&judged[..], [Health::Failed(why)] if why.contains("limit 1024")), "{judged:?}");
    }

    #[tokio::test]
    async fn what_cannot_be_evaluated_is_waited_for_and_says_why() {
        let judged = Judges::at("/nowhere").judge(vec![(&rule("v1", "Secret"), Value::Null)]).await;
        assert!(
            matches!(&judged[..], [Health::Progressing(why)] if why.contains("starting a process")),
            "{judged:?}"
        );
    }
}
