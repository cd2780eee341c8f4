//! The tests of every index, for the forms of CCEH with other scopes.

index_suite!(
    cceh_cow_8,
    crate::cceh::SCOPE_8,
    [words],
    &[
        crate::suite::SETTLE,
        crate::suite::DIRECTORY_INTENT,
        crate::suite::DIRECTORY_COMMIT,
        crate::suite::SEGMENT_COMMIT,
        crate::suite::COPY_COMMIT
    ]
);
index_suite!(
    cceh_cow_8_two,
    crate::cceh::TWO_HOMES,
    [words],
    &[
        crate::suite::SETTLE,
        crate::suite::DIRECTORY_INTENT,
        crate::suite::DIRECTORY_COMMIT,
        crate::suite::SEGMENT_COMMIT,
        crate::suite::COPY_COMMIT
    ]
);
