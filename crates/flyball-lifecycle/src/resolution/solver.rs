//! A solver for boolean constraints that prefers solutions by the order of candidates.
//!
//! The order of the search is that of OLM's solver: choices are made first in, first out; each tries its candidates in
//! their order, and adds the choices of the selected candidate. The first complete assignment is the solution, so it
//! contains no variable that nothing requires. Choices are undone in reverse order.
//!
//! Independent problems are solved one by one: backtracking over choices that have no constraint in common with a
//! conflict would take exponential time without another result.

use std::collections::VecDeque;

/// The index of a variable.
pub(super) type Var = usize;

/// A constraint of a problem.
#[derive(Clone, Debug)]
pub(super) enum Constraint {
    /// The variable is selected.
    Required(Var),
    /// The variable is not selected.
    Forbidden(Var),
    /// If the variable is selected, so is one of the candidates, the first of them preferably.
    Requires(Var, Vec<Var>),
    /// At most one of the variables is selected.
    AtMostOne(Vec<Var>),
}

impl Constraint {
    pub(super) fn variables(&self) -> impl Iterator<Item = Var> {
        let (first, rest): (Option<Var>, &[Var]) = match self {
            Self::Required(var) | Self::Forbidden(var) => (Some(*var), &[]),
            Self::Requires(var, candidates) => (Some(*var), candidates),
            Self::AtMostOne(all) => (None, all),
        };
        first.into_iter().chain(rest.iter().copied())
    }

    /// Returns the constraint with other numbers of its variables.
    pub(super) fn renumbered(&self, number: impl Fn(Var) -> Var) -> Self {
        let all = |all: &[Var]| all.iter().map(|var| number(*var)).collect();
        match self {
            Self::Required(var) => Self::Required(number(*var)),
            Self::Forbidden(var) => Self::Forbidden(number(*var)),
            Self::Requires(var, candidates) => Self::Requires(number(*var), all(candidates)),
            Self::AtMostOne(variables) => Self::AtMostOne(all(variables)),
        }
    }
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The selected variables, in the order of their selection.
    Solved(Vec<Var>),
    /// The constraints contradict each other.
    Unsatisfiable,
    /// The search was ended after too many steps.
    TooComplex,
}

/// Solves a problem. The number of steps bounds its time.
pub(super) fn solve(variables: usize, constraints: &[Constraint], steps: &mut u64) -> Outcome {
    let mut search = Search::new(variables, constraints);
    if !search.assert_units() {
        return Outcome::Unsatisfiable;
    }
    search.run(steps)
}

/// A set of candidates of which one has to be selected.
#[derive(Clone, Copy)]
struct Choice<'c> {
    candidates: &'c [Var],
    /// The candidates before this one were tried.
    next: usize,
}

/// A choice that was made.
struct Decision<'c> {
    choice: Choice<'c>,
    /// The selected candidate; `None` if a candidate was selected already.
    selected: Option<Var>,
    /// The number of choices that the selection added.
    added: usize,
    /// The length of the trail before.
    trail: usize,
}

struct Search<'c> {
    constraints: &'c [Constraint],
    /// The constraints in which a variable occurs.
    occurrences: Vec<Vec<usize>>,
    values: Vec<Option<bool>>,
    /// The variables with a value, in the order of their assignment.
    trail: Vec<Var>,
    /// The variables that were selected by decisions.
    is_selected: Vec<bool>,
    choices: VecDeque<Choice<'c>>,
    decisions: Vec<Decision<'c>>,
}

impl<'c> Search<'c> {
    fn new(variables: usize, constraints: &'c [Constraint]) -> Self {
        let mut occurrences = vec![Vec::new(); variables];
        for (index, constraint) in constraints.iter().enumerate() {
            for var in constraint.variables() {
                if occurrences[var].last() != Some(&index) {
                    occurrences[var].push(index);
                }
            }
        }
        Self {
            constraints,
            occurrences,
            values: vec![None; variables],
            trail: Vec::new(),
            is_selected: vec![false; variables],
            choices: VecDeque::new(),
            decisions: Vec::new(),
        }
    }

    /// Assigns the variables that are required or forbidden; returns false after a contradiction.
    fn assert_units(&mut self) -> bool {
        for constraint in self.constraints {
            let is_consistent = match constraint {
                Constraint::Required(var) => {
                    self.choices.push_back(Choice { candidates: std::slice::from_ref(var), next: 0 });
                    self.assign(*var, true)
                }
                Constraint::Forbidden(var) => self.assign(*var, false),
                Constraint::Requires(var, candidates) if candidates.is_empty() => self.assign(*var, false),
                Constraint::Requires(..) | Constraint::AtMostOne(_) => true,
            };
            if !is_consistent {
                return false;
            }
        }
        true
    }

    fn run(&mut self, steps: &mut u64) -> Outcome {
        while let Some(choice) = self.choices.pop_front() {
            let mut current = choice;
            while !self.decide(current) {
                let Some(left) = steps.checked_sub(1) else { return Outcome::TooComplex };
                *steps = left;
                let Some(previous) = self.undo() else { return Outcome::Unsatisfiable };
                current = previous;
            }
        }
        Outcome::Solved(self.decisions.iter().filter_map(|decision| decision.selected).collect())
    }

    /// Selects the next possible candidate of a choice; returns false if there is none.
    fn decide(&mut self, mut choice: Choice<'c>) -> bool {
        let trail = self.trail.len();
        if choice.next == 0 && choice.candidates.iter().any(|var| self.is_selected[*var]) {
            self.decisions.push(Decision { choice, selected: None, added: 0, trail });
            return true;
        }
        while let Some(var) = choice.candidates.get(choice.next).copied() {
            choice.next += 1;
            if self.values[var] != Some(false) && self.assign(var, true) {
                self.is_selected[var] = true;
                let before = self.choices.len();
                for index in &self.occurrences[var] {
                    if let Constraint::Requires(subject, candidates) = &self.constraints[*index]
                        && *subject == var
                    {
                        self.choices.push_back(Choice { candidates, next: 0 });
                    }
                }
                let added = self.choices.len() - before;
                self.decisions.push(Decision { choice, selected: Some(var), added, trail });
                return true;
            }
            self.unassign(trail);
        }
        self.choices.push_front(Choice { next: 0, ..choice });
        false
    }

    /// Undoes the last decision between candidates, and returns its choice.
    fn undo(&mut self) -> Option<Choice<'c>> {
        loop {
            let decision = self.decisions.pop()?;
            self.unassign(decision.trail);
            self.choices.truncate(self.choices.len() - decision.added);
            let Some(var) = decision.selected else {
                self.choices.push_front(Choice { next: 0, ..decision.choice });
                continue;
            };
            self.is_selected[var] = false;
            return Some(decision.choice);
        }
    }

    fn unassign(&mut self, trail: usize) {
        for var in self.trail.drain(trail..) {
            self.values[var] = None;
        }
    }

    /// Assigns a variable, and those that follow from it; returns false after a contradiction.
    fn assign(&mut self, var: Var, value: bool) -> bool {
        let mut done = self.trail.len();
        if !self.set(var, value) {
            return false;
        }
        while let Some(var) = self.trail.get(done).copied() {
            done += 1;
            let occurrences = std::mem::take(&mut self.occurrences[var]);
            let constraints = self.constraints;
            let is_consistent = occurrences.iter().all(|index| self.propagate(&constraints[*index], var));
            self.occurrences[var] = occurrences;
            if !is_consistent {
                return false;
            }
        }
        true
    }

    fn set(&mut self, var: Var, value: bool) -> bool {
        match self.values[var] {
            Some(known) => known == value,
            None => {
                self.values[var] = Some(value);
                self.trail.push(var);
                true
            }
        }
    }

    /// Assigns what follows from a constraint after one of its variables was assigned.
    fn propagate(&mut self, constraint: &Constraint, changed: Var) -> bool {
        match constraint {
            Constraint::Required(_) | Constraint::Forbidden(_) => true,
            Constraint::AtMostOne(all) => {
                self.values[changed] == Some(false)
                    || all.iter().all(|other| *other == changed || self.set(*other, false))
            }
            Constraint::Requires(subject, candidates) => {
                if self.values[*subject] == Some(false)
                    || candidates.iter().any(|candidate| self.values[*candidate] == Some(true))
                {
                    return true;
                }
                let mut open = candidates.iter().filter(|candidate| self.values[**candidate].is_none());
                match (open.next(), open.next()) {
                    (None, _) => self.set(*subject, false),
                    (Some(last), None) if self.values[*subject] == Some(true) => self.set(*last, true),
                    _ => true,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solution(variables: usize, constraints: &[Constraint]) -> Outcome {
        solve(variables, constraints, &mut 10_000)
    }

    #[test]
    fn first_candidates_are_preferred() {
        use Constraint::{AtMostOne, Forbidden, Required, Requires};
        let solved = |variables: &[Var]| Outcome::Solved(variables.to_vec());
        assert_eq!(solution(3, &[Required(0), Requires(0, vec![2, 1])]), solved(&[0, 2]));
        assert_eq!(solution(3, &[Required(0), Requires(0, vec![2, 1]), Forbidden(2)]), solved(&[0, 1]));
        let shared = [Required(0), Required(1), Requires(0, vec![2, 3]), Requires(1, vec![3]), AtMostOne(vec![2, 3])];
        assert_eq!(solution(4, &shared), solved(&[0, 1, 3]));
        assert_eq!(solution(2, &[Required(0), Requires(0, vec![1]), Forbidden(1)]), Outcome::Unsatisfiable);
        assert_eq!(solution(1, &[Required(0), Requires(0, Vec::new())]), Outcome::Unsatisfiable);
    }

    /// Compares the solver with one that tries all assignments.
    #[test]
    fn satisfiability_agrees_with_enumeration() {
        let mut state = 1_u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..3_000 {
            let variables = 2 + random(5);
            let constraints: Vec<Constraint> = (0..2 + random(8))
                .map(|_| {
                    let many = (0..random(3)).map(|_| random(variables)).collect::<Vec<_>>();
                    match random(5) {
                        0 => Constraint::Required(random(variables)),
                        1 => Constraint::Forbidden(random(variables)),
                        2 => {
                            let mut all = many;
                            all.sort_unstable();
                            all.dedup();
                            Constraint::AtMostOne(all)
                        }
                        _ => Constraint::Requires(random(variables), many),
                    }
                })
                .collect();
            let holds = |assignment: usize| {
                let is = |var: &Var| assignment >> var & 1 == 1;
                constraints.iter().all(|constraint| match constraint {
                    Constraint::Required(var) => is(var),
                    Constraint::Forbidden(var) => !is(var),
                    Constraint::Requires(var, candidates) => !is(var) || candidates.iter().any(is),
                    Constraint::AtMostOne(all) => all.iter().filter(|var| is(var)).count() < 2,
                })
            };
            let is_satisfiable = (0..1 << variables).any(holds);
            match solution(variables, &constraints) {
                Outcome::Solved(selected) => {
                    assert!(holds(selected.iter().fold(0, |all, var| all | 1 << var)), "{constraints:?}: {selected:?}");
                }
                outcome => assert!(!is_satisfiable, "{constraints:?}: {outcome:?}"),
            }
        }
    }
}
