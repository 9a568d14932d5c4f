//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

// verdict is what is known of a family on a device: nothing before its first use.
type verdict struct {
	known bool
	err   error // why it is not used
}

// family is a set of kernels that something slower can stand in for: where a variable
// switches it off, and where its check at the first use fails. It is declared beside its
// launchers, by addFamily.
type family string

var (
	// families says of each what takes its place, familyKernels how the names of its kernels
	// begin.
	families      = make(map[family]string)
	familyKernels = make(map[family][]string)
	// checks are short runs of the families on random numbers, held against the same
	// operations in float64 on the host. What a family is computed with beside itself stands
	// in needs; everything else is off while it is checked.
	checks = make(map[family]selfCheck)
)

type selfCheck struct {
	run   func(p *probe)
	needs []family
}

func addFamily(f family, instead string, kernels []string, check func(p *probe), needs ...family) struct{} {
	families[f], familyKernels[f], checks[f] = instead, kernels, selfCheck{check, needs}
	return struct{}{}
}

// errSwitchedOff is the verdict that a variable gives.
var errSwitchedOff = errors.New("switched off by " + offVariable)

// checkPatience is how long kernels that take milliseconds may run when they are checked.
const checkPatience = 30 * time.Second

// readOff takes the families that are switched off by the variable.
func (b *cuda) readOff(off map[family]bool) {
	b.families = make(map[family]verdict)
	for f := range off {
		b.families[f] = verdict{true, errSwitchedOff}
	}
	if len(off) > 0 {
		var names []string
		for _, f := range slices.Sorted(maps.Keys(off)) {
			names = append(names, fmt.Sprintf("%s (%s instead)", f, families[f]))
		}
		warn(fmt.Sprintf("%s: %s switches off: %s", b.device, offVariable, strings.Join(names, ", ")))
	}
}

// usable tells whether a family is used, within an operation. At its first use it is
// checked; while a graph is recorded it is off, and the recording begins again with it.
func (b *cuda) usable(f family) bool {
	if b.checking != "" {
		return f == b.checking || slices.Contains(checks[b.checking].needs, f)
	}
	v := b.families[f]
	if v.known {
		return v.err == nil
	}
	if b.rec != nil {
		b.rec.unchecked = append(b.rec.unchecked, f)
		return false
	}
	return b.checkFamily(f) == nil
}

// uses is usable of several, between operations.
func (b *cuda) uses(all ...family) (ok bool) {
	b.do("self-check", func() {
		ok = true
		for _, f := range all {
			ok = b.usable(f) && ok
		}
	})
	return ok
}

// checkFamily checks a family and says what it found where that is no good.
func (b *cuda) checkFamily(f family) error {
	err := b.check(f)
	b.families[f] = verdict{true, err}
	if err != nil {
		warn(fmt.Sprintf("%s: kernels %s are switched off, %s instead: %v", b.device, f, families[f], err))
	}
	return err
}

// check runs the check of a family, with memory of its own. An error of the device ends
// the program: after it nothing runs any more. It says how to do without the family.
func (b *cuda) check(f family) (err error) {
	hint := func(err error) error { return fmt.Errorf("%w (%s=%s does without it)", err, offVariable, f) }
	b.try("self-check", b.await()) // an error of earlier work is not its fault
	p := &probe{b: newCUDA(cuda{cudaDevice: b.cudaDevice, checking: f}), f: f}
	d := b.cudaDevice
	temps, scratch, size, used, taken, workspace := d.temps, d.scratch, d.size, d.used, d.taken, d.workspace
	peak, limit, calls, queued, hostBytes, exact := d.peak, d.limit, d.calls, slices.Clone(d.queued), d.hostBytes, d.exact
	d.temps, d.scratch, d.size, d.used, d.workspace, d.limit, d.exact = nil, 0, 0, 0, 0, 0, false
	p.launched = make(map[string]bool)
	d.launched = p.launched
	defer func() {
		d.launched = nil
		d.temps, d.scratch, d.size, d.used, d.taken, d.workspace = temps, scratch, size, used, taken, workspace
		d.peak, d.limit, d.calls, d.queued, d.hostBytes, d.exact = peak, limit, calls, queued, hostBytes, exact
	}()
	failed := p.b.caught(func() {
		checks[f].run(p)
	})
	if broken := b.await(); broken != nil {
		if failed == nil {
			failed = broken
		}
		b.try("self-check of "+string(f), hint(failed))
	}
	p.free()
	switch {
	case failed != nil: // refused before it ran: the device goes on
		return failed
	case p.err == nil && !p.ran():
		return errors.New("none of its kernels ran in the check")
	}
	return p.err
}

// await waits until all queued work is done, and not for ever.
func (b *cuda) await() error {
	for deadline := time.Now().Add(checkPatience); ; time.Sleep(50 * time.Microsecond) {
		switch err := b.stream.Query(); {
		case err == nil:
			return nil
		case !errors.Is(err, cu.NotReady):
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("not done after %v", checkPatience)
		}
	}
}

// checkRecorded checks the families that a recording has met, and tells whether there
// were any.
func (b *cuda) checkRecorded(r *recording) bool {
	if len(r.unchecked) == 0 {
		return false
	}
	b.do("self-check", func() {
		for _, f := range r.unchecked {
			b.usable(f)
		}
	})
	return true
}

// checkDevice is kernels.DeviceKind.Check.
func checkDevice(ordinal int) (err error) {
	_, _ = openNCCL() // Devices tells of it
	if _, err := openCUDA(ordinal); err != nil {
		return err
	}
	defer kernels.CatchDevice(&err)
	b := opened.get(ordinal)
	for _, f := range slices.Sorted(maps.Keys(families)) {
		if f != familyPrefillHopper || b.sm90a {
			b.uses(f)
		}
	}
	return nil
}

// describeFamilies says which kernels are not used, and why.
func (b *cuda) describeFamilies() (off []string) {
	for _, f := range slices.Sorted(maps.Keys(b.families)) {
		if err := b.families[f].err; err != nil {
			off = append(off, fmt.Sprintf("%s: %v; %s instead", f, err, families[f]))
		}
	}
	return off
}
