//! What another field manager owns of an object that is to be applied, and whether that is drift.
//!
//! An apply is first sent without force. The API answers `409` with every field that somebody else owns
//! and wants to be otherwise. A field that has been ours was taken from us: it is put back. Any other was
//! never ours to give: it is told, unless somebody said that it is to be taken.

use std::collections::BTreeMap;

use kube::core::Status;

use super::adopt;
use super::fault::{Complaint, Fault};
use super::fields;
use crate::terms::Terms;
use farshore_shared::wire::Conflicts as Policy;

/// The most fields of one manager that are told.
const FIELDS_TOLD: usize = 5;
/// The most managers that are told.
const MANAGERS_TOLD: usize = 5;

/// The fields that others own, by manager.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Conflicts {
    by_manager: BTreeMap<String, Vec<String>>,
}

impl Conflicts {
    /// The conflicts of an apply that was refused for them.
    ///
    /// Kubernetes API reference, `StatusCause`, reason `FieldManagerConflict`; the message is that of
    /// `apimachinery/pkg/util/managedfields`, `conflict with "MANAGER" using VERSION`.
    pub(super) fn read(fault: &Fault) -> Option<Self> {
        let Status { code: 409, details: Some(details), .. } = fault.status()? else { return None };
        let mut conflicts = Self::default();
        for cause in details.causes.iter().filter(|cause| cause.reason == "FieldManagerConflict") {
            let manager = cause.message.split('"').nth(1).unwrap_or("somebody").to_owned();
            conflicts.by_manager.entry(manager).or_default().push(cause.field.clone());
        }
        (!conflicts.by_manager.is_empty()).then_some(conflicts)
    }

    /// Whether all of it may be taken, by what is known of the object.
    pub(super) fn may_be_taken(&self, terms: &Terms) -> bool {
        let asked = terms.conflicts == Policy::Force;
        asked
            || self.by_manager.iter().all(|(manager, fields)| {
                let succeeded = terms.adopt && adopt::is_adoptable(manager);
                succeeded || fields.iter().all(|field| terms.owned.has(field))
            })
    }

    /// Says who owns what, and how to take it.
    pub(super) fn complaint(&self) -> Complaint {
        let mut told: Vec<String> = Vec::new();
        for (manager, fields) in self.by_manager.iter().take(MANAGERS_TOLD) {
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            told.push(format!("{manager:?} owns {}", fields::some(&fields, FIELDS_TOLD)));
        }
        if self.by_manager.len() > MANAGERS_TOLD {
            told.push(format!("{} more managers own others", self.by_manager.len() - MANAGERS_TOLD));
        }
        let hint = if self.by_manager.keys().any(|manager| adopt::is_adoptable(manager)) {
            "farshore.dev/adopt: \"true\" takes the object over, farshore.dev/force: \"true\" these fields"
        } else {
            "leave them out, or take them with farshore.dev/force: \"true\""
        };
        Complaint::worthwhile(format!("conflict: {} ({hint})", told.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::{FieldMarks, Owned};
    use serde_json::json;

    fn conflicts() -> Conflicts {
        let cause = |manager: &str, field: &str| {
            json!({"reason": "FieldManagerConflict", "field": field,
                "message": format!("conflict with \"{manager}\" using v1 at 2026-11-21T09:00:00Z")})
        };
        let status = json!({"code": 409, "reason": "Conflict", "message": "Apply failed with 3 conflicts", "details": {
            "causes": [cause("kubectl-edit", ".data.a"), cause("helm", ".data.b"), cause("kubectl-edit", ".data.c")]}});
        let fault = Fault::Refused(Box::new(serde_json::from_value(status).expect("a status")));
        Conflicts::read(&fault).expect("conflicts")
    }

    #[test]
    fn a_conflict_names_the_other_managers_and_their_fields() {
        let complaint = conflicts().complaint();
        let text = "conflict: \"helm\" owns .data.b; \"kubectl-edit\" owns .data.a, .data.c (";
        assert!(complaint.message.starts_with(text), "{}", complaint.message);
        assert!(complaint.message.contains("farshore.dev/adopt"), "helm's objects can be taken over");
    }

    #[test]
    fn what_has_been_ours_is_taken_back_and_nothing_else() {
        let conflicts = conflicts();
        let owned = |owned: Owned| Terms { owned, ..Terms::default() };
        let fields = |fields: &[&str]| Owned::Fields(FieldMarks::of(fields.iter().copied()));
        assert!(conflicts.may_be_taken(&owned(Owned::Everything)));
        assert!(conflicts.may_be_taken(&owned(fields(&[".data.a", ".data.b", ".data.c"]))));
        assert!(!conflicts.may_be_taken(&owned(fields(&[".data.a", ".data.c"]))));
        assert!(!conflicts.may_be_taken(&owned(Owned::Unknown)));
        assert!(conflicts.may_be_taken(&Terms { conflicts: Policy::Force, ..Terms::default() }));
        let adopt = Terms { adopt: true, ..owned(fields(&[".data.a", ".data.c"])) };
        assert!(conflicts.may_be_taken(&adopt), "helm is succeeded, and the rest has been ours");
        assert!(!conflicts.may_be_taken(&Terms { adopt: true, ..Terms::default() }));
    }

    #[test]
    fn another_409_is_no_conflict_of_fields() {
        let status = json!({"code": 409, "reason": "Conflict", "message": "the object has been modified"});
        let fault = Fault::Refused(Box::new(serde_json::from_value(status).expect("a status")));
        assert_eq!(Conflicts::read(&fault), None);
    }
}
