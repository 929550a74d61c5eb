"""What `conan create .` builds and runs against the new package: the consumers of this folder."""
from conan import ConanFile
from conan.tools.cmake import CMake


class Consumers(ConanFile):
    settings = "os", "compiler", "build_type", "arch"
    generators = "CMakeToolchain", "CMakeDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        self.folders.root = "../.."
        self.folders.source = "tests/install"
        self.folders.build = "build/conan_test"
        self.folders.generators = "build/conan_test/generators"

    def test(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()  # which runs them
