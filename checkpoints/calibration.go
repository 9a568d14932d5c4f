package checkpoints

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"glimpse/internal/atomicfile"
	"glimpse/internal/regularfile"
)

// CalibrationFile is the name of a calibration in the folder of a run, and beside an adapter.
const CalibrationFile = "calibration.json"

const (
	calibrationFormat  = "glimpse-calibration"
	calibrationVersion = 1
	maxCalibration     = 1 << 20 // bytes
)

// Calibration is what "evict calibrate" has certified: the policy and the budget whose expected loss on prompts like those
// that were measured is at most Epsilon, with that confidence. Losses are in the unit of Loss: nats per token, clipped
// to ±Clip, or shares.
type Calibration struct {
	Format  string `json:"format"`
	Version int    `json:"version"`

	ModelName   string `json:"model"`        // for people
	ModelSHA256 string `json:"model_sha256"` // of the weights, see model.Model.SHA256

	Policy   string             `json:"policy"` // as --policy takes it, with its own options
	Settings map[string]float64 `json:"settings"`
	Budget   string             `json:"budget"`
	// Adapter is what the policy's adapter was called, and AdapterSHA256 its [Adapter.SHA256]; "" for a policy without one.
	Adapter       string `json:"adapter,omitempty"`
	AdapterSHA256 string `json:"adapter_sha256,omitempty"`
	// Heads is how KV heads shared the budget, as --heads takes it, and HeadsSHA256 is of the file of budgets, "" without one.
	Heads       string `json:"heads"`
	HeadsSHA256 string `json:"heads_sha256,omitempty"`

	Loss       string  `json:"loss"`
	Clip       float64 `json:"clip"` // nats per token; 0 for other losses
	Epsilon    float64 `json:"epsilon"`
	Confidence float64 `json:"confidence"`

	MeanLoss   float64 `json:"mean_loss"`   // that was measured
	UpperBound float64 `json:"upper_bound"` // of the expected one
	Documents  int     `json:"documents"`
	Prompts    int     `json:"prompts"`
	Policies   int     `json:"policies"` // among which the confidence was divided

	Data []CalibrationData `json:"data"`
	Date string            `json:"date"` // YYYY-MM-DD
}

// CalibrationData is a file of prompts that were measured.
type CalibrationData struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
}

// ParseCalibration reads a calibration and refuses one that says what none can.
func ParseCalibration(data []byte) (*Calibration, error) {
	c := new(Calibration)
	if err := decodeVersioned(data, calibrationFormat, calibrationVersion, c); err != nil {
		return nil, err
	}
	return c, c.validate()
}

// ReadCalibration reads a calibration from a file, or from the folder that has it.
func ReadCalibration(path string) (*Calibration, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, CalibrationFile)
	}
	data, err := regularfile.Read(path, maxCalibration)
	if err != nil {
		return nil, fmt.Errorf("calibration %s: %w", path, noPath(err))
	}
	c, err := ParseCalibration(data)
	if err != nil {
		return nil, fmt.Errorf("calibration %s: %w", path, err)
	}
	return c, nil
}

// Write writes the calibration to a file, whole or not at all.
func (c *Calibration) Write(path string) error {
	c.Format, c.Version = calibrationFormat, calibrationVersion
	if err := c.validate(); err != nil {
		return err
	}
	data, err := encodeJSON(c, "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(path, data)
}

func (c *Calibration) validate() error {
	var p problems
	check := func(ok bool, format string, args ...any) {
		if !ok {
			p = append(p, fmt.Sprintf(format, args...))
		}
	}
	check(isSHA256(c.ModelSHA256), "model_sha256: got %.100q, want a SHA-256", c.ModelSHA256)
	check(c.AdapterSHA256 == "" || isSHA256(c.AdapterSHA256), "adapter_sha256: got %.100q, want a SHA-256", c.AdapterSHA256)
	check(c.HeadsSHA256 == "" || isSHA256(c.HeadsSHA256), "heads_sha256: got %.100q, want a SHA-256", c.HeadsSHA256)
	check(c.Policy != "" && c.Budget != "" && c.Loss != "", "policy %.100q, budget %.100q, loss %.100q: want none empty", c.Policy, c.Budget, c.Loss)
	check(c.Clip >= 0, "clip: got %v, want 0 or more", c.Clip)
	check(c.Epsilon > 0 && !math.IsInf(c.Epsilon, 0), "epsilon: got %v, want above 0", c.Epsilon)
	check(c.Confidence > 0 && c.Confidence < 1, "confidence: got %v, want above 0 and below 1", c.Confidence)
	check(c.MeanLoss <= c.UpperBound && c.UpperBound <= c.Epsilon, "mean loss %v, upper bound %v, epsilon %v: want them in this order", c.MeanLoss, c.UpperBound, c.Epsilon)
	check(c.Documents > 0 && c.Prompts >= c.Documents && c.Policies > 0, "%d documents, %d prompts, %d policies: want at least one of each, and no more documents than prompts", c.Documents, c.Prompts, c.Policies)
	_, err := time.Parse(time.DateOnly, c.Date)
	check(err == nil, "date: got %.40q, want YYYY-MM-DD", c.Date)
	return p.in("")
}
