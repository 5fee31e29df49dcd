//! Models as somebody writes them who does not know hookpoint: with modules behind trait objects.

pub mod blocks;
pub mod layers;
pub mod net;
pub mod steps;
