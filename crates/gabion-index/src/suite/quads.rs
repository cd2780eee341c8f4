//! The tests of every index, for the forms of Level hashing and its baselines whose values have
//! several words.

index_suite!(
    level_quad,
    crate::level::QUADS,
    [words],
    &[crate::suite::LEVEL_SETTLE]
);
index_suite!(
    level_quad_nt,
    crate::level::STREAMED,
    [words],
    &[crate::suite::LEVEL_SETTLE]
);
index_suite!(
    level_quad_log,
    crate::level::LOGGED,
    [words],
    &[crate::suite::LEVEL_SETTLE]
);
index_suite!(bch_quad, crate::bch::QUADS, [words], &[]);
index_suite!(pfht_quad, crate::pfht::QUADS, [words], &[]);
index_suite!(path_quad, crate::pathhash::QUADS, [words], &[]);
