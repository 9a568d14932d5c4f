package lineup

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/evaluation"
	"glimpse/internal/modelfile"
)

// sweepFile is what "train sweep" writes beside its adapters.
const sweepFile = "sweep.json"

// maxSweep bounds the file.
const maxSweep = 1 << 24

// IsSweep tells that an adapter's place is the folder of a sweep, which stands for all of its
// adapters, each by its name in the sweep.
func IsSweep(spec string) bool {
	if spec == Shipped || strings.Contains(spec, "=") || objectstore.IsURL(spec) {
		return false
	}
	_, err := os.Stat(filepath.Join(spec, sweepFile))
	return err == nil
}

// ReadSweep reads the adapters of a sweep's folder, which may have moved since.
func ReadSweep(folder string) (points []evaluation.SweepPoint, err error) {
	raw, err := modelfile.ReadJSON(os.DirFS(folder), sweepFile, maxSweep)
	if err != nil {
		return nil, fmt.Errorf("sweep %s: %w", folder, err)
	}
	if err := json.Unmarshal(raw, &points); err != nil {
		return nil, fmt.Errorf("sweep %s: %s: %w", folder, sweepFile, err)
	}
	names := make(map[string]bool)
	for i := range points {
		p := &points[i]
		if p.Name == "" || p.Name != filepath.Base(p.Folder) || p.Rows < 1 || names[p.Name] {
			return nil, fmt.Errorf("sweep %s: %s: adapter %d is %q of %d rows in %q, want a name, its folder, and every one once", folder, sweepFile, i, p.Name, p.Rows, p.Folder)
		}
		names[p.Name] = true
		// RUN/pass-N/adapters/NAME
		parts := strings.Split(filepath.ToSlash(p.Folder), "/")
		p.Folder = filepath.Join(append([]string{folder}, parts[max(0, len(parts)-3):]...)...)
	}
	if len(points) == 0 {
		return nil, fmt.Errorf("sweep %s: %s: got no adapters, want at least one", folder, sweepFile)
	}
	return points, nil
}

// withSweeps are adapters with those of a sweep in the place of its folder.
func withSweeps(specs []string) (out []string, err error) {
	for _, spec := range specs {
		if !IsSweep(spec) {
			out = append(out, spec)
			continue
		}
		points, err := ReadSweep(spec)
		if err != nil {
			return nil, err
		}
		for _, p := range points {
			out = append(out, p.Name+"="+p.Folder)
		}
	}
	return out, nil
}
