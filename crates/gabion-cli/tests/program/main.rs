//! The program as its users meet it: its commands, files and messages.

mod backup;
mod bad_input;
mod bench;
mod book;
mod changes;
mod dump;
mod follow;
mod kill;
mod lab;
mod load;
mod memory;
mod merges;
mod records;
mod reproduce;
mod space;
mod support;
