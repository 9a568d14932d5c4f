//go:build gpu && linux && (amd64 || arm64)

package cudadriver

// #include "nccl.h"
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// NCCLVariable names the NCCL library to load; with [NCCLOff] there is none.
const (
	NCCLVariable = "GLIMPSE_NCCL"
	NCCLOff      = "off"
)

var ncclLibrary = library{NCCLVariable, []string{"libnccl.so.2"}, "libnccl.so.2", []string{"nccl"}}

// NCCL is the loaded NCCL of this process.
type NCCL struct {
	Path    string
	Version int // 22703 is 2.27.3
}

// OpenNCCL loads NCCL from $GLIMPSE_NCCL, or else from where the loader, a toolkit or a Python
// environment has it. The error lists what was tried.
var OpenNCCL = sync.OnceValues(func() (*NCCL, error) {
	if os.Getenv(NCCLVariable) == NCCLOff {
		return nil, fmt.Errorf("NCCL is switched off by %s=%s", NCCLVariable, NCCLOff)
	}
	var tried []error
	for _, path := range ncclLibrary.candidates() {
		name := C.CString(path)
		message := make([]byte, 1024)
		failed := C.glimpse_nccl_open(name, (*C.char)(unsafe.Pointer(&message[0])), C.size_t(len(message))) != 0
		C.free(unsafe.Pointer(name))
		if !failed {
			return &NCCL{path, int(C.glimpse_nccl_version())}, nil
		}
		tried = append(tried, errors.New(C.GoString((*C.char)(unsafe.Pointer(&message[0])))))
	}
	return nil, fmt.Errorf("NCCL was not found; install it (libnccl2, or pip install nvidia-nccl-cu12) or name the library in %s: %w", NCCLVariable, errors.Join(tried...))
})

// VersionText is the version as NVIDIA writes it.
func (n *NCCL) VersionText() string {
	return fmt.Sprintf("%d.%d.%d", n.Version/10000, n.Version/100%100, n.Version%100)
}

// NewID is what the ranks of a communicator have in common: one of them makes it, before all of
// them call Join.
func (n *NCCL) NewID() ([]byte, error) {
	id := make([]byte, C.NCCL_ID)
	if code := C.glimpse_nccl_id((*C.char)(unsafe.Pointer(&id[0]))); code != 0 {
		return nil, fmt.Errorf("ncclGetUniqueId: %w", ncclError(nil, code))
	}
	return id, nil
}

// Comm is a rank of a communicator, on a device. No call blocks: what has begun is done when State says so.
// The context of the device must be current in all calls.
type Comm struct{ p unsafe.Pointer }

// Move is device memory on its way to or from another rank.
type Move struct {
	At    cu.DevicePtr
	Bytes int64
	Peer  int
	Sends bool
}

// Join begins to make the communicator of ranks that have the same id.
func (n *NCCL) Join(id []byte, rank, ranks int) (*Comm, error) {
	if len(id) != C.NCCL_ID {
		return nil, fmt.Errorf("NCCL: an id of %d bytes, want %d", len(id), C.NCCL_ID)
	}
	c := &Comm{}
	code := C.glimpse_nccl_init(&c.p, C.int(ranks), (*C.char)(unsafe.Pointer(&id[0])), C.int(rank))
	return c, c.check("ncclCommInitRankConfig", code)
}

// check is the error of a call that has not just begun.
func (c *Comm) check(call string, code C.int) error {
	if code == C.NCCL_SUCCESS || code == C.NCCL_IN_PROGRESS {
		return nil
	}
	return fmt.Errorf("%s: %w", call, ncclError(c.p, code))
}

func ncclError(comm unsafe.Pointer, code C.int) error {
	var last *C.char
	text := C.GoString(C.glimpse_nccl_error(comm, code, &last))
	if last != nil && *last != 0 {
		text += ": " + C.GoString(last)
	}
	return fmt.Errorf("%s (result %d)", text, int(code))
}

// State tells whether what has begun is done.
func (c *Comm) State() (done bool, err error) {
	code := C.glimpse_nccl_state(c.p)
	return code == C.NCCL_SUCCESS, c.check("NCCL", code)
}

// Move queues moves on a stream, to be done at the same time.
func (c *Comm) Move(moves []Move, stream cu.Stream) error {
	list := make([]C.glimpse_move, len(moves))
	for i, m := range moves {
		list[i] = C.glimpse_move{at: C.uintptr_t(m.At), bytes: C.size_t(m.Bytes), peer: C.int(m.Peer)}
		if m.Sends {
			list[i].sends = 1
		}
	}
	handle := *(*unsafe.Pointer)(unsafe.Pointer(&stream)) // cu.Stream is this one field
	code := C.glimpse_nccl_move(c.p, &list[0], C.int(len(list)), handle)
	return c.check("ncclSend and ncclRecv", code)
}

// Finalize begins to end the communicator, on all its ranks; when State says that this is done,
// Destroy frees it.
func (c *Comm) Finalize() error { return c.check("ncclCommFinalize", C.glimpse_nccl_finalize(c.p)) }

// Destroy frees the communicator.
func (c *Comm) Destroy() error { return c.check("ncclCommDestroy", C.glimpse_nccl_destroy(c.p)) }

// Abort ends and frees the communicator on this rank, whatever the others do; moves under way end.
func (c *Comm) Abort() error { return c.check("ncclCommAbort", C.glimpse_nccl_abort(c.p)) }
