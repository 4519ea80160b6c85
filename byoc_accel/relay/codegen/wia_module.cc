// A TVM runtime module that can be run at once and can be linked into an exported library.
//
// TVM knows modules that run (a loaded shared library) and modules that export (a C source, an object
// file), but no external codegen of the wheel gives both: a "library" module cannot be exported and a
// "c" module cannot be run straight after relay.build. This class asks for the object file of one compiled
// region at export_library, and for a loaded library with its entry point when it is first called.
//
// Built lazily by plugin.py against the headers of the installed TVM wheel. An exported library does not need it.
#include <dlfcn.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace byoc_accel {

using tvm::runtime::Array;
using tvm::runtime::Module;
using tvm::runtime::ModuleNode;
using tvm::runtime::ModulePropertyMask;
using tvm::runtime::Object;
using tvm::runtime::ObjectPtr;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

// A library whose symbols are visible to the whole process. Code that LLVM compiles in memory for the AOT
// executor calls a region by its bare symbol, and finds it only there.
struct GlobalLibrary {
  GlobalLibrary(void* handle, std::string digest) : handle(handle), digest(std::move(digest)) {}
  ~GlobalLibrary() { dlclose(handle); }
  void* handle;
  std::string digest;
};

// Symbol -> library that defines it for the process. The dynamic linker's global scope is process-wide, so
// the record of what was put there is as well. Weak: the modules own the libraries.
std::mutex global_mutex;
std::map<std::string, std::weak_ptr<GlobalLibrary>> global_libraries;

class RegionModuleNode final : public ModuleNode {
 public:
  RegionModuleNode(PackedFunc object_bytes, Array<String> symbols, PackedFunc library)
      : object_bytes_(object_bytes), symbols_(symbols), library_(library) {}

  const char* type_key() const final { return "byoc_accel"; }

  int GetPropertyMask() const final {
    return ModulePropertyMask::kRunnable | ModulePropertyMask::kDSOExportable;
  }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    for (const String& symbol : symbols_) {
      if (symbol != name) continue;
      // `self` keeps the loaded code alive for as long as the function is. TVM asks for every function while it
      // builds; the library is made when one is called. Two threads may both do that: no lock is held while Python
      // makes it, which has one of its own.
      auto found = std::make_shared<std::shared_ptr<PackedFunc>>();
      return PackedFunc([this, name, found, self](TVMArgs args, TVMRetValue* ret) {
        std::shared_ptr<PackedFunc> entry = std::atomic_load(found.get());
        if (entry == nullptr) {
          Module library = library_();
          entry = std::make_shared<PackedFunc>(library->GetFunction(name, false));
          std::atomic_store(found.get(), entry);
        }
        entry->CallPacked(args, ret);
      });
    }
    return PackedFunc(nullptr);
  }

  String GetFormat() final { return "o"; }

  void SaveToFile(const String& file_name, const String& format) final {
    std::string content = object_bytes_();
    std::ofstream file(file_name, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    ICHECK(!file.fail()) << "byoc_accel: cannot write the object file of a region to " << file_name;
  }

  // Makes `symbol` of the library at `path` callable from the whole process.
  // Returns false when another library with other bytes defines it already.
  bool ExposeSymbol(const std::string& symbol, const std::string& path, const std::string& digest) {
    std::lock_guard<std::mutex> lock(global_mutex);
    std::weak_ptr<GlobalLibrary>& entry = global_libraries[symbol];
    if (std::shared_ptr<GlobalLibrary> present = entry.lock()) {
      if (present->digest != digest) return false;
      global_library_ = present;
      return true;
    }
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    ICHECK(handle != nullptr) << "byoc_accel: cannot load a region: " << dlerror();
    global_library_ = std::make_shared<GlobalLibrary>(handle, digest);
    entry = global_library_;
    return true;
  }

 private:
  PackedFunc object_bytes_;  // () -> bytes
  Array<String> symbols_;
  PackedFunc library_;  // () -> module; not called for a module that only carries code to link (the runtime)
  std::shared_ptr<GlobalLibrary> global_library_;
};

// (() -> object file bytes, names of its entry points, () -> loaded library) -> module
TVM_REGISTER_GLOBAL("byoc_accel.relay.CreateModule").set_body([](TVMArgs args, TVMRetValue* ret) {
  *ret = Module(tvm::runtime::make_object<RegionModuleNode>(args[0], args[1], args[2]));
});

// (module, symbol, path of the loaded library, digest of the image) -> bool, see ExposeSymbol
TVM_REGISTER_GLOBAL("byoc_accel.relay.ExposeSymbol").set_body([](TVMArgs args, TVMRetValue* ret) {
  Module module = args[0];
  auto* node = dynamic_cast<RegionModuleNode*>(module.operator->());
  ICHECK(node != nullptr) << "byoc_accel: not a region module: " << module->type_key();
  *ret = node->ExposeSymbol(args[1], args[2], args[3]);
});

}  // namespace byoc_accel
