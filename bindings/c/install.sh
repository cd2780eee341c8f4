#!/bin/sh
# Installs Gabion's C interface: libraries, headers, a pkg-config file and a CMake package; and the
# library for programs of LevelDB's.
#
#   bindings/c/install.sh PREFIX [LIBRARIES]
#
# Builds the libraries with cargo, unless LIBRARIES is a directory where they lie already.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
if [ $# -eq 2 ]; then
    libraries=$2
else
    cargo build --manifest-path "$here/Cargo.toml" --profile measure --locked \
        -p gabion-c -p gabion-leveldb
    libraries=${CARGO_TARGET_DIR:-$here/../../target}/measure
fi
abi=$(sed -n 's/^#define GABION_ABI_VERSION //p' "$here/include/gabion.h")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)
# What the static library needs of the system.
system='-lpthread -ldl -lm'

install -d "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/lib/cmake/gabion"
install -m 644 "$here"/include/gabion*.h "$here"/include/gabion*.hpp "$prefix/include"
install -m 755 "$libraries/libgabion.so" "$prefix/lib/libgabion.so.$abi"
ln -sf "libgabion.so.$abi" "$prefix/lib/libgabion.so"
install -m 644 "$libraries/libgabion.a" "$prefix/lib"

cat > "$prefix/lib/pkgconfig/gabion.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: gabion
Description: A key-value storage engine for fast storage
Version: $version
Libs: -L\${libdir} -lgabion
Libs.private: $system
Cflags: -I\${includedir}
END

cat > "$prefix/lib/cmake/gabion/gabionConfig.cmake" <<END
# Targets gabion::gabion, the shared library, and gabion::static.
get_filename_component(_gabion_prefix "\${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET gabion::gabion)
    add_library(gabion::gabion SHARED IMPORTED)
    set_target_properties(gabion::gabion PROPERTIES
        IMPORTED_LOCATION "\${_gabion_prefix}/lib/libgabion.so"
        IMPORTED_SONAME "libgabion.so.$abi"
        INTERFACE_INCLUDE_DIRECTORIES "\${_gabion_prefix}/include")
    add_library(gabion::static STATIC IMPORTED)
    set_target_properties(gabion::static PROPERTIES
        IMPORTED_LOCATION "\${_gabion_prefix}/lib/libgabion.a"
        INTERFACE_INCLUDE_DIRECTORIES "\${_gabion_prefix}/include"
        INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()
END

cat > "$prefix/lib/cmake/gabion/gabionConfigVersion.cmake" <<END
set(PACKAGE_VERSION "$version")
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
endif()
if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
END
if [ -f "$libraries/libgabion_leveldb.so" ]; then
    install -d "$prefix/include/gabion/leveldb"
    install -m 644 "$here/leveldb/include/leveldb/c.h" "$prefix/include/gabion/leveldb"
    install -m 755 "$libraries/libgabion_leveldb.so" "$prefix/lib"
    cat > "$prefix/lib/pkgconfig/gabion_leveldb.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include/gabion

Name: gabion_leveldb
Description: The C interface of LevelDB on Gabion
Version: $version
Libs: -L\${libdir} -lgabion_leveldb
Cflags: -I\${includedir}
END
fi
echo "gabion $version is in $prefix"
