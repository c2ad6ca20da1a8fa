//! Metrics of a site, in the text format of Prometheus. Pure. Labels are words of this program, never names from outside.

use std::fmt::Write as _;

use crate::local::view::View;
use crate::local::{Health, standing_drift};

const HEALTHS: [Health; 6] =
    [Health::Healthy, Health::Progressing, Health::Waiting, Health::Held, Health::Failed, Health::Unknown];

/// The metrics.
#[must_use]
pub fn text(view: &View) -> String {
    let mut out = Metrics::default();
    services(&mut out, view);
    others(&mut out, view);
    controls(&mut out, view);
    out.0
}

fn services(out: &mut Metrics, view: &View) {
    let services = || view.services.iter();
    out.head("farshore_agent_services", "gauge", "Services by health.");
    for health in HEALTHS {
        let count = services().filter(|service| service.health == health).count();
        out.value(&format!("farshore_agent_services{{health=\"{}\"}}", health.word()), count);
    }
    let sum = |of: &dyn Fn(&crate::local::view::ServiceView) -> u64| services().map(of).sum::<u64>();
    let objects = sum(&|service| service.status.objects.into());
    out.gauge("farshore_agent_objects", "Objects that are as they should be.", objects);
    let failing = sum(&|service| service.status.failures.len() as u64);
    out.gauge("farshore_agent_failing_objects", "Objects that are not, as far as they are told.", failing);
    let drift = sum(&|service| standing_drift(&service.status) as u64);
    out.gauge(
        "farshore_agent_drift_objects",
        "Objects that differ and are left so, or are fought over.",
        drift,
    );
    let repairs = sum(&|service| service.status.repairs);
    out.head("farshore_agent_repairs_total", "counter", "Objects that were put back since the agent began.");
    out.value("farshore_agent_repairs_total", repairs);
}

fn others(out: &mut Metrics, view: &View) {
    let reached = u64::from(view.target.reached == Some(true));
    out.gauge("farshore_agent_target_reached", "Whether the target answered at the last look.", reached);
    out.gauge(
        "farshore_agent_hub_heard",
        "Whether the hub was heard within three polls and a minute.",
        view.hub.fresh.into(),
    );
    out.gauge(
        "farshore_agent_last_contact_seconds",
        "When the hub was heard last, since 1970; 0 if never.",
        view.hub.contact.last.unwrap_or_default(),
    );
    out.gauge(
        "farshore_agent_last_change_seconds",
        "When what is shown was found last, since 1970; 0 if never.",
        view.as_of.unwrap_or_default(),
    );
    out.gauge(
        "farshore_agent_reports_waiting",
        "Reports that have not arrived at the hub.",
        view.reports_waiting as u64,
    );
    out.gauge("farshore_agent_alarms", "What a person should look at.", view.alarms.len() as u64);
}

fn controls(out: &mut Metrics, view: &View) {
    let controls = &view.controls;
    out.gauge("farshore_agent_paused", "Whether everything is paused.", controls.paused.is_some().into());
    out.gauge(
        "farshore_agent_paused_services",
        "Services that are paused one by one.",
        controls.paused_services.len() as u64,
    );
    let held = controls.hold.is_some() || controls.window.is_some_and(|window| !window.open);
    out.gauge(
        "farshore_agent_held",
        "Whether no new revision may begin, by a hold or outside of the windows.",
        held.into(),
    );
}

#[derive(Default)]
struct Metrics(String);

impl Metrics {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}")
            .expect("a string takes whatever is written");
    }

    fn value(&mut self, name: &str, value: impl std::fmt::Display) {
        writeln!(self.0, "{name} {value}").expect("a string takes whatever is written");
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.value(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::keeper::Known;
    use crate::local::keeper::tests::snapshot;
    use crate::local::view;
    use std::sync::Arc;

    #[test]
    fn the_number_of_lines_is_the_same_however_many_services_there_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let lines = |count: usize| {
            let mut many = snapshot();
            many.services = vec![many.services[0].clone(); count];
            let known = Known { snapshot: Some(Arc::new(many)), ..Known::default() };
            let text = text(&view::of_known(folder.path(), &known));
            assert!(
                text.contains(&format!("farshore_agent_services{{health=\"healthy\"}} {count}\n")),
                "{text}"
            );
            assert!(text.contains(&format!("farshore_agent_objects {}\n", 3 * count)), "{text}");
            text.lines().count()
        };
        assert_eq!(lines(1), lines(300));
    }
}
