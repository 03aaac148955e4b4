# A port of the checkout that it lies in: vcpkg install colls --overlay-ports=tools/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(VCPKG_BUILD_TYPE release)  # it fits debug builds as well
set(VCPKG_POLICY_SKIP_LIB_CMAKE_MERGE_CHECK enabled)  # its CMake files find the library from where they lie
set(VCPKG_POLICY_SKIP_MISPLACED_CMAKE_FILES_CHECK enabled)

vcpkg_configure_meson(SOURCE_PATH "${SOURCE_PATH}" OPTIONS -Doptimization=2)
vcpkg_install_meson()
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
