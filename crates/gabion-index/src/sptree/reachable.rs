//! What recovery of the pool asks of a tree, before there is one: which blocks are in use.

use std::borrow::Borrow;
use std::cmp::Ordering;

use gabion_media::pmem::{BlockClaim, Medium};

use super::item::{LEAST, bound_key, compare_bound, key_of};
use super::layout::{BACKUP_AT, ITEM_HINT, LEAF_ALIGN, MOVING_AT, leaf_bytes};
use super::leaf::Leaf;
use super::log;
use super::{SpTree, TreeKey};
use crate::index::root_of;
use crate::spoton::layout::PAGE_HINT;
use crate::stored_key::KeyParts;

/// What recovery of the pool asks: whether a tree durably refers to a block. A leaf and an item
/// tell a key; if they are in use, the way along the chain to that key ends at the leaf, or at that
/// which refers to the item. The pool itself answers for its root.
pub(super) fn is_referenced<K: TreeKey + ?Sized, const N: usize>(
    medium: &Medium,
    claim: BlockClaim,
) -> bool {
    let root = root_of(medium);
    if root == 0 {
        return false;
    }
    match claim.hint {
        hint if hint == K::LEAF_HINT => is_in_chain::<K, N>(medium, root, claim) == Some(true),
        PAGE_HINT if K::IS_WORD => log::is_in_chain::<N>(medium, root + MOVING_AT, claim),
        ITEM_HINT if !K::IS_WORD => is_item::<K, N>(medium, root, claim) == Some(true),
        _ => K::is_in_backup(medium, root + BACKUP_AT, claim),
    }
}

fn is_in_chain<K: TreeKey + ?Sized, const N: usize>(
    medium: &Medium,
    root: u64,
    claim: BlockClaim,
) -> Option<bool> {
    let at = claim.block.raw();
    if !at.is_multiple_of(LEAF_ALIGN) || claim.size < leaf_bytes(N) {
        return None;
    }
    let lkey = Leaf::<N>::new(medium, at)?.lkey();
    let lkey = bound_key::<K>(medium, lkey).ok()?;
    Some(leaf_of::<K, N>(medium, root, &lkey)?.at == at)
}

fn is_item<K: TreeKey + ?Sized, const N: usize>(
    medium: &Medium,
    root: u64,
    claim: BlockClaim,
) -> Option<bool> {
    let at = claim.block.raw();
    let key = key_of::<K>(medium, [0, at]).ok()?;
    let leaf = leaf_of::<K, N>(medium, root, &key)?;
    let is_bound = leaf.lkey() == at && at != LEAST;
    Some(is_bound || leaf.entries().any(|(_, _, value)| value == at))
}

/// The last leaf of the chain whose lkey is not above a key.
fn leaf_of<'m, K: TreeKey + ?Sized, const N: usize>(
    medium: &'m Medium,
    root: u64,
    key: &K::Owned,
) -> Option<Leaf<'m, N>> {
    let key: &K = key.borrow();
    let parts = KeyParts::of(key);
    let known = K::leaf_in_backup(medium, root + BACKUP_AT, key);
    let first = root + SpTree::<K, N>::FIRST_LEAF_AT;
    let mut leaf = Leaf::<N>::new(medium, known.unwrap_or(first))?;
    for _ in 0..medium.len() / leaf_bytes(N) {
        let next = leaf.next();
        if next == 0 {
            return Some(leaf);
        }
        let next = Leaf::<N>::new(medium, next)?;
        if compare_bound::<K>(medium, next.lkey(), &parts).ok()? == Ordering::Greater {
            return Some(leaf);
        }
        leaf = next;
    }
    None
}
