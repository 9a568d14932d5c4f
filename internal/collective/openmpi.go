//go:build linux && cgo && (amd64 || arm64)

package collective

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// MPIVariable names the MPI library to load.
const MPIVariable = "GLIMPSE_MPI"

// Constants of Open MPI's mpi.h, of versions 4 and 5.
const (
	threadSerialized = 2
	maxErrorText     = 256
)

// library is Open MPI: its functions, and the objects that its header names by address.
type library struct {
	path, version string

	world, byteType, errorsReturn uintptr

	initThread, finalize, commRank, commSize, commDup, setErrhandler uintptr
	isend, irecv, test, cancel, requestFree, errorString             uintptr
}

// load loads Open MPI from $GLIMPSE_MPI, or from where the loader has it.
var load = sync.OnceValues(func() (*library, error) {
	paths := []string{"libmpi.so.40", "/usr/lib64/openmpi/lib/libmpi.so.40", "libmpi.so", "libmpi.so.12"}
	if path := os.Getenv(MPIVariable); path != "" {
		paths = []string{path}
	}
	var tried []error
	for _, path := range paths {
		// Its plug-ins look for the library's symbols among the global ones.
		handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err != nil {
			tried = append(tried, err)
			continue
		}
		return symbols(path, handle)
	}
	return nil, fmt.Errorf("MPI was not found; install Open MPI (Debian: openmpi-bin) or name the library in %s: %w", MPIVariable, errors.Join(tried...))
})

func symbols(path string, handle uintptr) (*library, error) {
	lib := &library{path: path}
	var version uintptr
	for _, s := range []struct {
		name string
		at   *uintptr
	}{
		{"MPI_Get_library_version", &version},
		{"ompi_mpi_comm_world", &lib.world}, {"ompi_mpi_byte", &lib.byteType}, {"ompi_mpi_errors_return", &lib.errorsReturn},
		{"MPI_Init_thread", &lib.initThread}, {"MPI_Finalize", &lib.finalize},
		{"MPI_Comm_rank", &lib.commRank}, {"MPI_Comm_size", &lib.commSize}, {"MPI_Comm_dup", &lib.commDup},
		{"MPI_Comm_set_errhandler", &lib.setErrhandler}, {"MPI_Isend", &lib.isend}, {"MPI_Irecv", &lib.irecv}, {"MPI_Test", &lib.test},
		{"MPI_Cancel", &lib.cancel}, {"MPI_Request_free", &lib.requestFree}, {"MPI_Error_string", &lib.errorString},
	} {
		var err error
		if *s.at, err = purego.Dlsym(handle, s.name); err != nil {
			if lib.version != "" && s.at == &lib.world {
				return nil, fmt.Errorf("MPI library %s is %s, want Open MPI 4 or 5", path, lib.version)
			}
			return nil, fmt.Errorf("MPI library %s: %w", path, err)
		}
		if s.at == &version {
			text, length := make([]byte, 8192), int32(0) // MPICH's is long
			purego.SyscallN(version, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&length)))
			line, _, _ := bytes.Cut(text, []byte{0})
			line, _, _ = bytes.Cut(line, []byte{','}) // "Open MPI v4.1.4, package: …"
			line, _, _ = bytes.Cut(line, []byte{'\n'})
			lib.version = string(line)
		}
	}
	return lib, nil
}

// Library is the MPI library that runs of several processes would use: its path and version.
func Library() (path, version string, err error) {
	lib, err := load()
	if err != nil {
		return "", "", err
	}
	return lib.path, lib.version, nil
}

// callFunction calls a function whose result is an error code.
func (lib *library) callFunction(name string, function uintptr, args ...uintptr) error {
	code, _, _ := purego.SyscallN(function, args...)
	if int32(code) == 0 {
		return nil
	}
	text, length := make([]byte, maxErrorText), int32(0)
	purego.SyscallN(lib.errorString, code, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&length)))
	line, _, _ := bytes.Cut(text, []byte{0})
	return fmt.Errorf("%s: %s", name, line)
}

func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
