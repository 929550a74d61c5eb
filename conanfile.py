"""Halftape as a Conan 2 package: `conan create . -s compiler.cppstd=20`; tests/install holds its test, whose programs find the
package as they do after cmake --install. Who uses it gets the project's own CMake package."""
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import load


class Halftape(ConanFile):
    name = "halftape"
    description = "Mixed-precision training in C++, from scratch"
    license = "MIT"
    package_type = "library"
    test_package_folder = "tests/install"
    settings = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False], "cpu_levels": ["all", "native", "baseline"], "cuda": [True, False]}
    default_options = {"shared": False, "cpu_levels": "all", "cuda": False}
    generators = "CMakeDeps"
    folders = ["core", "cpu", "cuda", "autograd", "nn", "optim", "amp", "io", "distributed", "cmake", "include"]
    exports_sources = ["CMakeLists.txt", "halftape.h", "LICENSE", "THIRD_PARTY.txt", "CHANGELOG.md", "scripts/halftape-gdb.py"] + [
        folder + "/*" for folder in folders]

    def set_version(self):
        self.version = re.search(r'HALFTAPE_VERSION "([^"]+)"', load(self, self.recipe_folder + "/core/version.h")).group(1)

    def layout(self):
        self.folders.build = "build/conan"
        self.folders.generators = "build/conan/generators"

    def validate(self):
        check_min_cppstd(self, 20)

    def requirements(self):
        self.requires("zlib/[>=1.2.11 <2]")
        self.requires("eigen/[>=3.4 <4]", visible=False)  # to build, not to use

    def generate(self):
        toolchain = CMakeToolchain(self)
        parts = ("TESTS", "SAMPLES", "BENCHMARKS", "WEB", "EXERCISES")
        toolchain.cache_variables.update({f"HALFTAPE_BUILD_{part}": False for part in parts})
        toolchain.cache_variables["HALFTAPE_UNITY_BUILD"] = True
        toolchain.cache_variables["HALFTAPE_CPU_LEVELS"] = str(self.options.cpu_levels)
        toolchain.cache_variables["HALFTAPE_CUDA"] = "ON" if self.options.cuda else "OFF"
        toolchain.cache_variables["HALFTAPE_GLOO"] = "OFF"  # Conan would not know what the package needs
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # halftapeConfig.cmake is there
        self.cpp_info.set_property("pkg_config_name", "none")  # and halftape.pc
        self.cpp_info.builddirs = ["lib/cmake/halftape"]
        self.cpp_info.libs = ["halftape"]
        if self.settings.os == "Linux":
            self.cpp_info.system_libs = ["pthread", "dl"]
