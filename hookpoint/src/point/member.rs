//! Which tensor inside a value: the members of a tuple, a list, a map or a struct.
//!
//! The second tensor of a map need not be the same at every call, so members are known by their names. The runs of
//! a plan number the names as they meet them; a value of one tensor has no names, and is not looked up.

/// A tensor inside a value, or the value as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member(u32);

impl Member {
    /// The only tensor, or the first of several wherever its name does not matter.
    pub const FIRST: Self = Self(0);
    /// The value itself, with all that is inside.
    pub const WHOLE: Self = Self(u32::MAX);

    /// A tensor by the number of its name, which is not 0, and whether it comes first.
    pub fn new(name: u32, is_first: bool) -> Self {
        Self(name << 1 | u32::from(is_first))
    }

    /// The first tensor stands for the value: it is meant where no tensor is named.
    pub fn is_first(self) -> bool {
        self == Self::FIRST || (self.0 & 1 == 1 && self != Self::WHOLE)
    }

    /// A tensor behind the first.
    pub fn is_further(self) -> bool {
        !self.is_first() && self != Self::WHOLE
    }

    pub fn number(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_further_and_whole_exclude_each_other() {
        let kinds = |member: Member| [member.is_first(), member.is_further(), member == Member::WHOLE];
        assert_eq!(kinds(Member::FIRST), [true, false, false]);
        assert_eq!(kinds(Member::new(1, true)), [true, false, false]);
        assert_eq!(kinds(Member::new(1, false)), [false, true, false]);
        assert_eq!(kinds(Member::WHOLE), [false, false, true]);
    }
}
