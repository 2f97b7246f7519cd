//! A rule, and the verdict of trying it.

use zonal::ZoneAction;

use crate::bench::{Bench, Checked};

/// How binding a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A device that breaks it is wrong.
    Must,
    /// Hosts expect it, but the specification leaves it to the device.
    Should,
}

impl Level {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Must => "must",
            Self::Should => "should",
        }
    }
}

/// The access and the zones that a rule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: it only reads.
    Reading,
    /// So many sequential write required zones that may be written.
    Zones(usize),
    /// A conventional zone that may be written.
    Conventional,
    /// A sequential write preferred zone that may be written.
    Preferred,
}

/// A function that tries a rule.
pub(crate) type Try = fn(&Bench<'_>) -> Checked;

/// One requirement.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name: a group, then its subject.
    pub id: String,
    /// Where the specification says it.
    pub clause: &'static str,
    /// The requirement, as a sentence.
    pub requires: String,
    /// How binding it is.
    pub level: Level,
    pub(crate) needs: Needs,
}

/// A rule with a function of its own, for tables.
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) clause: &'static str,
    pub(crate) level: Level,
    pub(crate) needs: Needs,
    pub(crate) requires: &'static str,
    pub(crate) check: Try,
}

impl Row {
    pub(crate) fn rule(&self) -> (Rule, Try) {
        let rule = Rule {
            id: self.id.to_owned(),
            clause: self.clause,
            requires: self.requires.to_owned(),
            level: self.level,
            needs: self.needs,
        };
        (rule, self.check)
    }
}

/// The verdict of trying a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The device follows it.
    Pass,
    /// The device breaks it.
    Fail {
        /// The behaviour that the rule demands here.
        expected: String,
        /// The behaviour of the device.
        found: String,
        /// The requests that lead there, from a reset on.
        steps: Vec<String>,
    },
    /// It could not be tried.
    Skip {
        /// Why.
        reason: String,
    },
}

/// The section of ZNS about an action.
pub(crate) const fn clause_of(action: ZoneAction) -> &'static str {
    match action {
        ZoneAction::Open => "ZNS 1.1, 3.4.3 (Open Zone) and 2.1.1",
        ZoneAction::Close => "ZNS 1.1, 3.4.3 (Close Zone) and 2.1.1",
        ZoneAction::Finish => "ZNS 1.1, 3.4.3 (Finish Zone) and 2.1.1",
        ZoneAction::Reset => "ZNS 1.1, 3.4.3 (Reset Zone) and 2.1.1",
    }
}

/// The command of ZBC-2 that is an action.
pub(crate) const fn zbc_clause_of(action: ZoneAction) -> &'static str {
    match action {
        ZoneAction::Open => "ZBC-2, OPEN ZONE command",
        ZoneAction::Close => "ZBC-2, CLOSE ZONE command",
        ZoneAction::Finish => "ZBC-2, FINISH ZONE command",
        ZoneAction::Reset => "ZBC-2, RESET WRITE POINTER command",
    }
}
