package checkpoints

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"glimpse/internal/modelfile"
)

// SweepFile is what "train sweep" writes beside its adapters, the [SweepPoint] of each.
const SweepFile = "sweep.json"

// maxSweep bounds the file.
const maxSweep = 1 << 24

// SweepPoint is one adapter of a sweep.
type SweepPoint struct {
	Name         string  `json:"name"`
	Rows         int     `json:"rows"`
	Modules      string  `json:"modules"` // with LoRA
	LearningRate float64 `json:"learning_rate"`
	Folder       string  `json:"folder"`
}

// ReadSweep reads the adapters of a sweep's folder, which may have moved since.
func ReadSweep(folder string) (points []SweepPoint, err error) {
	raw, err := modelfile.ReadJSON(os.DirFS(folder), SweepFile, maxSweep)
	if err != nil {
		return nil, fmt.Errorf("sweep %s: %w", folder, err)
	}
	if err := json.Unmarshal(raw, &points); err != nil {
		return nil, fmt.Errorf("sweep %s: %s: %w", folder, SweepFile, err)
	}
	names := make(map[string]bool)
	for i := range points {
		p := &points[i]
		if p.Name == "" || p.Name != filepath.Base(p.Folder) || p.Rows < 1 || names[p.Name] {
			return nil, fmt.Errorf("sweep %s: %s: adapter %d is %q of %d rows in %q, want a name, its folder, and every one once", folder, SweepFile, i, p.Name, p.Rows, p.Folder)
		}
		names[p.Name] = true
		// RUN/pass-N/adapters/NAME
		parts := strings.Split(filepath.ToSlash(p.Folder), "/")
		p.Folder = filepath.Join(append([]string{folder}, parts[max(0, len(parts)-3):]...)...)
	}
	if len(points) == 0 {
		return nil, fmt.Errorf("sweep %s: %s: got no adapters, want at least one", folder, SweepFile)
	}
	return points, nil
}
