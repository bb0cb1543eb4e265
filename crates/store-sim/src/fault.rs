//! Fault injection: a list of rules, tried in order for every I/O, that decide which I/Os fail and
//! how.
//!
//! Invariant: the same plan, generator state and order of I/Os give the same faults. Threads: none;
//! the device holds the plan under its lock.

use std::ops::Range;

/// Kind of a request to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// Read of the data area.
    Read,
    /// Write of the data area.
    Write,
    /// Sync of the whole device.
    Sync,
    /// Read of a journal area.
    JournalRead,
    /// Write into a journal area.
    JournalWrite,
    /// Sync of a journal area.
    JournalSync,
}

impl OpKind {
    /// Reads of either area.
    pub const READS: &'static [OpKind] = &[OpKind::Read, OpKind::JournalRead];
    /// Writes and syncs of either area.
    pub const WRITES: &'static [OpKind] =
        &[OpKind::Write, OpKind::JournalWrite, OpKind::Sync, OpKind::JournalSync];
    /// Everything.
    pub const ALL: &'static [OpKind] = &[
        OpKind::Read,
        OpKind::Write,
        OpKind::Sync,
        OpKind::JournalRead,
        OpKind::JournalWrite,
        OpKind::JournalSync,
    ];
}

/// Effect on an I/O that a rule selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// `EIO`; of a write, the first sectors may have landed.
    Eio,
    /// `ENOSPC`; of a write, the first sectors may have landed.
    Enospc,
    /// A transfer that ends early: `UnexpectedEof` or `WriteZero`.
    Short,
    /// The device is gone: this and every later I/O is `ENXIO`.
    Vanish,
    /// A read that succeeds with one bit flipped.
    Corrupt,
    /// A write that reports success and never lands.
    Lost,
}

/// Selects among the I/Os that a rule matches, counted per rule from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// Every one.
    Always,
    /// Each with this probability.
    Chance(f64),
    /// Only this one.
    Only(u64),
    /// This one and all after it.
    From(u64),
}

/// One line of a [`FaultPlan`].
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Kinds of requests that the rule matches.
    pub ops: &'static [OpKind],
    /// Only those that touch this range of the device; `None`: anywhere.
    pub range: Option<Range<u64>>,
    /// Selection among the matching requests.
    pub when: When,
    /// Effect on the selected requests.
    pub effect: Effect,
}

impl Rule {
    /// A rule for the whole device.
    pub fn new(ops: &'static [OpKind], when: When, effect: Effect) -> Rule {
        Rule { ops, range: None, when, effect }
    }

    /// The same for a part of the device.
    pub fn within(mut self, range: Range<u64>) -> Rule {
        self.range = Some(range);
        self
    }

    fn touches(&self, op: OpKind, range: &Range<u64>) -> bool {
        self.ops.contains(&op)
            && self.range.as_ref().is_none_or(|r| r.start < range.end && range.start < r.end)
    }
}

/// Rules with their counters.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    rules: Vec<(Rule, u64)>,
    fired: u64,
}

impl FaultPlan {
    /// No faults.
    pub fn none() -> FaultPlan {
        FaultPlan::default()
    }

    /// The rules, first match wins.
    pub fn new(rules: Vec<Rule>) -> FaultPlan {
        FaultPlan { rules: rules.into_iter().map(|rule| (rule, 0)).collect(), fired: 0 }
    }

    /// Whether a rule matches this kind of request.
    pub fn mentions(&self, op: OpKind) -> bool {
        self.rules.iter().any(|(rule, _)| rule.ops.contains(&op))
    }

    /// How many I/Os have been picked so far.
    pub fn fired(&self) -> u64 {
        self.fired
    }

    /// Decides about one I/O.
    pub(crate) fn decide(
        &mut self,
        op: OpKind,
        range: Range<u64>,
        rng: &mut fastrand::Rng,
    ) -> Option<Effect> {
        let mut effect = None;
        for (rule, seen) in &mut self.rules {
            if !rule.touches(op, &range) {
                continue;
            }
            let index = *seen;
            *seen += 1;
            let picked = match rule.when {
                When::Always => true,
                When::Chance(p) => rng.f64() < p,
                When::Only(n) => index == n,
                When::From(n) => index >= n,
            };
            if picked && effect.is_none() {
                effect = Some(rule.effect);
            }
        }
        self.fired += u64::from(effect.is_some());
        effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_pick_by_kind_range_and_count() {
        let rng = &mut fastrand::Rng::with_seed(0);
        let mut plan = FaultPlan::new(vec![
            Rule::new(&[OpKind::Read], When::Only(1), Effect::Short),
            Rule::new(OpKind::ALL, When::Always, Effect::Eio).within(4096..8192),
        ]);
        assert_eq!(plan.decide(OpKind::Read, 0..512, rng), None);
        assert_eq!(plan.decide(OpKind::Write, 0..512, rng), None);
        assert_eq!(plan.decide(OpKind::Read, 0..512, rng), Some(Effect::Short));
        assert_eq!(plan.decide(OpKind::Read, 0..4097, rng), Some(Effect::Eio));
        assert_eq!(plan.decide(OpKind::Sync, 8192..9000, rng), None);
        assert_eq!(plan.fired(), 2);
    }
}
