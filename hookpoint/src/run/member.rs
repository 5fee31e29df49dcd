//! The runs of a plan number the names of [members](Member) as they meet them.

use std::cell::RefCell;

use super::points::Points;
use super::RunState;
use crate::lookup::FastMap;
use crate::point::Member;

/// The names of members by number, from 1. A name that a value has twice, as `a.b` of a map in a map may be, has a
/// number for each.
#[derive(Default)]
pub(super) struct MemberNames {
    numbers: FastMap<Box<str>, Vec<u32>>,
    last: u32,
}

impl MemberNames {
    /// The number of the name that a value has for the so manieth time, counted from 0.
    pub fn number(&mut self, name: &str, before: usize) -> u32 {
        if let Some(number) = self.numbers.get(name).and_then(|all| all.get(before)) {
            return *number;
        }
        self.last += 1;
        self.numbers.entry(name.into()).or_default().push(self.last);
        self.last
    }
}

/// Numbers the tensors of one value, in the order in which they are visited.
pub(super) struct Members<'r> {
    points: &'r RefCell<Points>,
    position: u32,
    /// How often each name was met in this value.
    met: FastMap<u32, usize>,
}

impl Members<'_> {
    /// How many tensors were visited.
    pub fn count(&self) -> u32 {
        self.position
    }

    /// The next tensor: its position, and which member it is.
    pub fn next(&mut self, name: &str) -> (u32, Member) {
        let position = self.position;
        self.position += 1;
        if position == 0 && name.is_empty() {
            return (position, Member::FIRST);
        }
        let mut points = self.points.borrow_mut();
        let mut number = points.members.number(name, 0);
        let met = self.met.entry(number).or_insert(0);
        if *met > 0 {
            number = points.members.number(name, *met);
        }
        *met += 1;
        (position, Member::new(number, position == 0))
    }
}

impl RunState<'_> {
    /// To number the tensors of a value that is about to be visited.
    pub(super) fn members(&self) -> Members<'_> {
        Members { points: &self.dispatch.points, position: 0, met: FastMap::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_a_number_one_name() {
        let mut names = MemberNames::default();
        let first = names.number("costarring", 0);
        let others = ["liquid", "costarring.", ""].map(|name| names.number(name, 0));
        assert_eq!(names.number("costarring", 0), first);
        let second = names.number("costarring", 1);
        assert_eq!(names.number("costarring", 1), second);
        let mut all = vec![first, second];
        all.extend(others);
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4, 5]);
    }
}
