//! Rules of health in the process that evaluates them, as the agent starts it.

use std::time::{Duration, Instant};

use farshore_agent::health::Health;
use farshore_agent::health::rules::Judges;
use farshore_shared::wire::HealthRule;
use serde_json::{Value, json};

fn judges() -> Judges {
    Judges::at(env!("CARGO_BIN_EXE_farshore-agent"))
}

fn rule(current: &str) -> HealthRule {
    HealthRule {
        api_version: "shop.example/v1".into(),
        kind: "Till".into(),
        in_progress: None,
        failed: Some("status.phase == 'Broken'".into()),
        current: current.into(),
    }
}

fn till(phase: &str) -> Value {
    json!({"apiVersion": "shop.example/v1", "kind": "Till", "metadata": {"name": "one"}, "status": {"phase": phase}})
}

async fn judged(current: &str, object: Value) -> Health {
    judges().judge(vec![(&rule(current), object)]).await.remove(0)
}

#[tokio::test]
async fn a_rule_judges_each_object_by_itself() {
    let rule = rule("status.phase == 'Open'");
    let cases = ["Open", "Opening", "Broken"].map(|phase| (&rule, till(phase)));
    let judged = judges().judge(cases.to_vec()).await;
    assert!(
        matches!(&judged[..], [Health::Current, Health::Progressing(_), Health::Failed(_)]),
        "{judged:?}"
    );
}

#[tokio::test]
async fn an_expression_that_asks_for_too_much_ends_its_own_process_and_no_other() {
    let deep = "(".repeat(500) + "1" + &")".repeat(500);
    let brackets = "[".repeat(500) + &"]".repeat(500);
    // Each step is as long as all before it: more memory than the process has.
    let list = "[1,2,3,4,5,6,7,8,9,10]";
    let wide = ["a", "b", "c", "d", "e", "f", "g", "h"]
        .iter()
        .rfold("1".to_owned(), |inner, name| format!("{list}.map({name}, {inner})"));
    for hungry in [deep, brackets, format!("size({wide}) == 1")] {
        let begun = Instant::now();
        let health = judged(&hungry, till("Open")).await;
        assert_ne!(health, Health::Current, "{hungry}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }
    assert_eq!(judged("status.phase == 'Open'", till("Open")).await, Health::Current);
}

#[tokio::test]
async fn an_object_at_the_size_limit_of_the_api_is_judged() {
    let mut large = till("Open");
    large["spec"] = json!({"text": "x".repeat(3 << 20)});
    assert_eq!(judged("status.phase == 'Open' && size(spec.text) > 1000", large).await, Health::Current);
}

#[tokio::test]
async fn a_rule_has_no_more_memory_than_it_is_given() {
    let mut large = till("Open");
    large["spec"] = json!({"text": "x".repeat(3 << 20)});
    let numbers = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    // 300 MiB of texts at once.
    let rule = rule(&format!("size([{numbers}].map(n, spec.text + 'x')) == 100"));
    let judged = async |judges: &Judges| judges.judge(vec![(&rule, large.clone())]).await.remove(0);
    let mut judges = judges();
    assert_eq!(judged(&judges).await, Health::Current, "the default is enough");
    judges.give(256 << 20);
    let health = judged(&judges).await;
    assert!(matches!(&health, Health::Progressing(why) if why.contains("memory (256Mi)")), "{health:?}");
}

#[tokio::test]
async fn an_expression_that_is_none_is_told() {
    let health = judged("status.phase = 'Open'", till("Open")).await;
    assert!(matches!(&health, Health::Failed(why) if why.contains("cannot be used")), "{health:?}");
}
