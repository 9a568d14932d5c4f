package kernels

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"glimpse/internal/bytesize"
	"glimpse/internal/suggest"
)

// DeviceReport is what a machine offers beside its processor, and what is missing
// for it to be used.
type DeviceReport struct {
	Built     bool      `json:"built"`               // with the build tag gpu, on a platform that has drivers
	Driver    string    `json:"driver,omitempty"`    // path of the library
	Version   string    `json:"version,omitempty"`   // newest CUDA that the driver serves
	Devices   []Device  `json:"devices,omitempty"`   // by ordinal
	Libraries []Library `json:"libraries,omitempty"` // loaded at run time
	Missing   []string  `json:"missing,omitempty"`   // what to do about it included; empty: cuda devices can be used
}

// Device is one accelerator.
type Device struct {
	Name       string `json:"name"` // as --device takes it: cuda:0
	Model      string `json:"model"`
	Capability string `json:"capability"` // 9.0
	Memory     int64  `json:"memory"`     // bytes
	Free       int64  `json:"free"`       // bytes not in use by anyone; -1 where that is not known
	// Attention is what prompts over caches in bf16 run on; known where a backend is open.
	Attention string `json:"attention,omitempty"`
	// Kernels is what the driver runs of the fat binaries: machine code, or PTX that it
	// compiles; known where a backend is open.
	Kernels string `json:"kernels,omitempty"`
}

// Library is a shared library that is loaded at run time.
type Library struct {
	Name    string `json:"name"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	Missing string `json:"missing,omitempty"` // why it is not there, where devices can be used without
}

// Usable says why cuda devices cannot be used; nil where they can.
func (r DeviceReport) Usable() error {
	if len(r.Missing) == 0 {
		return nil
	}
	return errors.New(strings.Join(r.Missing, "; "))
}

// ChooseDevice resolves the device name that a user gave: "auto" becomes cuda:0
// where one can be used, else cpu, and why says the reason; any other name stays
// and why is empty. It does not check that the named device exists: Open does.
func ChooseDevice(name string) (device, why string) {
	if name != "auto" {
		return name, ""
	}
	r := Devices()
	if err := r.Usable(); err != nil {
		return "cpu", "device cpu: " + err.Error()
	}
	d := r.Devices[0]
	return d.Name, fmt.Sprintf("device %s: %s, %s", d.Name, d.Model, bytesize.FormatMemory(d.Memory))
}

// DeviceOfRank is where one of several ranks computes, the one with number local among the ranks of its
// machine: ranks that are to choose take the machine's devices in turn.
func DeviceOfRank(name string, local, ranks int) string {
	if name != "auto" || ranks == 1 {
		return name
	}
	chosen, _ := ChooseDevice(name)
	if n := len(Devices().Devices); strings.HasPrefix(chosen, "cuda:") && n > 0 {
		return fmt.Sprintf("cuda:%d", local%n)
	}
	return chosen
}

// DeviceOf names what b computes on, as far as results depend on it: the backend, and
// the model of its device where it has one.
func DeviceOf(b Backend) string {
	if model := b.Model(); model != "" {
		return b.Name() + " " + model
	}
	return b.Name()
}

// DeviceKind is how devices of a kind are found and opened, by their numbers. A
// package of kernels gives it to SetCUDA.
type DeviceKind struct {
	Open    func(ordinal int) (Backend, error)
	Devices func() DeviceReport
	// Check opens a device and looks for what only some runs need. Devices reports what it found.
	Check func(ordinal int) error
}

// cudaDevices are there where package kernels/cuda is linked.
var cudaDevices = func() DeviceKind {
	missing := "kernels/cuda is not part of this binary"
	return DeviceKind{
		Open:    func(int) (Backend, error) { return nil, errors.New("device cuda: " + missing) },
		Devices: func() DeviceReport { return DeviceReport{Missing: []string{missing}} },
		Check:   func(int) error { return errors.New("device cuda: " + missing) },
	}
}()

// SetCUDA is called once, when package kernels/cuda is initialised.
func SetCUDA(devices DeviceKind) { cudaDevices = devices }

// Devices reports drivers, devices and libraries.
func Devices() DeviceReport { return cudaDevices.Devices() }

// CheckDevice checks a device by its number, as DeviceKind says.
func CheckDevice(ordinal int) error { return cudaDevices.Check(ordinal) }

// DeviceNames are what a device may be called on this machine.
func DeviceNames() []string {
	names := []string{"cpu", "auto"}
	for _, d := range Devices().Devices {
		names = append(names, d.Name)
	}
	return names
}

// unknownDevice names what --device takes; not all of it is registered.
func unknownDevice(name string) error {
	if strings.EqualFold(name, "gpu") || strings.EqualFold(name, "cuda0") {
		return fmt.Errorf("unknown device %q, want one of: %s, cuda:N, auto; did you mean \"cuda:0\"?", name, strings.Join(Backends.Names(), ", "))
	}
	return suggest.Unknown("device", name, append(Backends.Names(), "cuda:N", "auto"))
}

// cudaOrdinal reads "cuda" or "cuda:N".
func cudaOrdinal(name string) (ordinal int, ok bool, err error) {
	if name == "cuda" {
		return 0, true, nil
	}
	number, ok := strings.CutPrefix(name, "cuda:")
	if !ok {
		return 0, false, nil
	}
	ordinal, err = strconv.Atoi(number)
	if err != nil || ordinal < 0 || number != strconv.Itoa(ordinal) {
		return 0, true, fmt.Errorf("device %q: want cuda or cuda:N with N from 0", name)
	}
	return ordinal, true, nil
}

// DeviceError is what an operation of an accelerated backend ends in: memory that
// is full, a launch that failed, a device that was lost. Operations panic with it,
// since nothing that follows them can go on; CatchDevice makes it an error where a
// pass or a step ends.
type DeviceError struct {
	Device string // cuda:0
	Op     string // operation or kernel
	Err    error
}

func (e *DeviceError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Device, e.Op, e.Err) }
func (e *DeviceError) Unwrap() error { return e.Err }

// CatchDevice is deferred where a computation begins: it turns a panic with a
// *DeviceError into *err and lets any other panic pass.
func CatchDevice(err *error) {
	switch p := recover().(type) {
	case nil:
	case *DeviceError:
		*err = p
	default:
		panic(p)
	}
}
