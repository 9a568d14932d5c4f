//go:build gpu && linux && (amd64 || arm64)

package cudadriver

// #include <cuda.h>
// #include <stdlib.h>
// extern int glimpse_driver_has(const char *name);
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// Graphs says why this driver cannot capture streams into graphs; nil where it can.
// What is needed came with CUDA 12.0.
func Graphs() error {
	for _, name := range []string{"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphExecUpdate_v2", "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy"} {
		c := C.CString(name)
		has := C.glimpse_driver_has(c) != 0
		C.free(unsafe.Pointer(c))
		if !has {
			return fmt.Errorf("the driver lacks the function %s", name)
		}
	}
	return nil
}

func graphError(call string, code C.CUresult) error {
	if code == C.CUDA_SUCCESS {
		return nil
	}
	what := ""
	switch code {
	case C.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
		what = " (an operation cannot be captured)"
	case C.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
		what = " (an operation before has failed)"
	case C.CUDA_ERROR_NOT_SUPPORTED:
		what = " (not supported)"
	}
	return fmt.Errorf("%s: error %d%s", call, int(code), what)
}

func streamHandle(s cu.Stream) C.CUstream {
	return *(*C.CUstream)(unsafe.Pointer(&s)) // cu.Stream is this one field
}

// BeginCapture makes work that is queued on s part of a graph instead of running it,
// from whatever threads it comes.
func BeginCapture(s cu.Stream) error {
	return graphError("cuStreamBeginCapture", C.cuStreamBeginCapture_v2(streamHandle(s), C.CU_STREAM_CAPTURE_MODE_RELAXED))
}

// EndCapture returns what was queued since BeginCapture. It must be called whatever
// has happened in between.
func EndCapture(s cu.Stream) (Graph, error) {
	var g Graph
	code := C.cuStreamEndCapture(streamHandle(s), &g.g)
	return g, graphError("cuStreamEndCapture", code)
}

// Graph is captured work.
type Graph struct{ g C.CUgraph }

// Destroy frees it; executables made of it stay.
func (g Graph) Destroy() error {
	if g.g == nil {
		return nil
	}
	return graphError("cuGraphDestroy", C.cuGraphDestroy(g.g))
}

// Instantiate makes an executable of the graph.
func (g Graph) Instantiate() (GraphExec, error) {
	var e GraphExec
	code := C.cuGraphInstantiateWithFlags(&e.e, g.g, 0)
	return e, graphError("cuGraphInstantiate", code)
}

// GraphExec is a graph that can be launched.
type GraphExec struct{ e C.CUgraphExec }

// Made tells that there is one: that it is not the zero value.
func (e GraphExec) Made() bool { return e.e != nil }

// Update gives an executable the parameters of another graph, which is much cheaper
// than Instantiate. It returns false where the graphs differ in more than
// parameters, and e is as it was. Launches before are not affected.
func (e GraphExec) Update(g Graph) (bool, error) {
	var info C.CUgraphExecUpdateResultInfo
	code := C.cuGraphExecUpdate_v2(e.e, g.g, &info)
	if code == C.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE {
		return false, nil
	}
	return code == C.CUDA_SUCCESS, graphError("cuGraphExecUpdate", code)
}

// Launch queues all work of the graph on a stream.
func (e GraphExec) Launch(s cu.Stream) error {
	return graphError("cuGraphLaunch", C.cuGraphLaunch(e.e, streamHandle(s)))
}

// Destroy frees the executable once its launches are done.
func (e GraphExec) Destroy() error {
	if e.e == nil {
		return nil
	}
	return graphError("cuGraphExecDestroy", C.cuGraphExecDestroy(e.e))
}
