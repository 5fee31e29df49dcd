//! Which point of a run it is, without its name.

use super::Member;
use crate::tree::NodeId;

/// Identifies a point within a run without naming it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PointKey {
    pub node: NodeId,
    /// The address of the method's description; 0 for what belongs to the module as such.
    pub method: usize,
    pub slot: Slot32,
    /// Which tensor inside the value.
    pub member: Member,
}

impl std::hash::Hash for PointKey {
    /// In two words.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let slot = match self.slot {
            Slot32::Result => 0,
            Slot32::Input(number) => u64::from(number) << 2 | 1,
            Slot32::Binding(number) => u64::from(number) << 2 | 2,
        };
        state.write_u64(u64::from(self.node) << 32 | u64::from(self.member.number()));
        state.write_u64((self.method as u64).rotate_left(32) ^ slot);
    }
}

impl PointKey {
    /// The output of a module, or the results of operations with a parameter.
    pub fn output(node: NodeId) -> Self {
        Self { node, method: 0, slot: Slot32::Result, member: Member::FIRST }
    }

    pub fn is_output(&self) -> bool {
        self.is_of_output() && self.member.is_first()
    }

    /// Is it the output, of which nobody says what it is called inside the value? Its number is that of the node.
    pub fn is_node(&self) -> bool {
        self.is_of_output() && self.member == Member::FIRST
    }

    /// Is it the output, or a part of it?
    pub fn is_of_output(&self) -> bool {
        self.method == 0 && self.slot == Slot32::Result
    }
}

/// Which value of a method.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Slot32 {
    Result,
    Input(u32),
    Binding(u32),
}
