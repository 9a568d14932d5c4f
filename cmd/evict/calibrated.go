package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/model"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// byCalibration is what --budget takes in the place of a budget, alone or with ":FILE" behind it.
const byCalibration = "calibrated"

// calibratedBudget is a budget as a flag, or the name of a calibration that says it.
type calibratedBudget struct {
	*eviction.Budget
	asked bool
	path  string // "": beside the adapter
	read  *checkpoints.Calibration
}

// Set reads the flag.
func (c *calibratedBudget) Set(text string) error {
	name, path, _ := strings.Cut(text, ":")
	if c.asked = name == byCalibration; c.asked {
		c.path, c.read = path, nil
		return nil
	}
	return c.Budget.Set(text)
}

// String is the flag.
func (c *calibratedBudget) String() string {
	switch {
	case c.asked && c.path != "":
		return byCalibration + ":" + c.path
	case c.asked:
		return byCalibration
	case c.Budget == nil: // as pflag asks for the zero value
		return ""
	}
	return c.Budget.String()
}

// bindCalibrated is bindBudget for a command that takes a calibration, too.
func (s *setup) bindCalibrated(f *pflag.FlagSet, b *eviction.Budget, of string, short int) {
	bindBudget(f, b, of, short)
	flag := f.Lookup("budget")
	s.calibrated.Budget = b
	flag.Value = &s.calibrated
	flag.Usage = fmt.Sprintf("KV entries per KV head and layer, as 128, a share of the %s, as 10%%, or %s:FILE", of, byCalibration)
}

// applyCalibration puts what was calibrated in the place of the budget, the policy and how heads share a budget, where --budget asks for it.
// It may be called again.
func (s *setup) applyCalibration(cmd *cobra.Command) error {
	c := &s.calibrated
	if !c.asked || c.read != nil {
		return nil
	}
	given := cli.GivenFlags(cmd.Flags())
	if given.Given("policy") {
		return fmt.Errorf("--policy %s with --budget %s: the calibration says which policy, want one of the flags", s.Policies, c)
	}
	read, err := s.readCalibration(cmd.Context())
	if err != nil {
		return fmt.Errorf("--budget %s: %w", c, err)
	}
	if err := c.Budget.Set(read.Budget); err != nil {
		return fmt.Errorf("--budget %s: %w", c, err)
	}
	s.Policies, s.PolicyByDefault = read.Policy, false
	if !given.Given("heads") {
		s.Heads, s.HeadsByDefault = read.Heads, false
	}
	c.read = read
	return nil
}

// readCalibration reads the file that was named, or the one beside the adapter.
func (s *setup) readCalibration(ctx context.Context) (*checkpoints.Calibration, error) {
	if s.calibrated.path != "" {
		return checkpoints.ReadCalibration(s.calibrated.path)
	}
	if len(s.Adapters) != 1 || s.Adapters[0] == engine.Shipped {
		return nil, fmt.Errorf("got %d adapters that may have a %s beside them, want one --adapter, or %s:FILE", len(s.Adapters), checkpoints.CalibrationFile, byCalibration)
	}
	dir := s.Adapters[0]
	if _, path, ok := strings.Cut(dir, "="); ok && !objectstore.IsURL(dir) {
		dir = path
	}
	a, err := objectstore.ReadAdapter(ctx, dir, s.S3)
	if err != nil {
		return nil, err
	}
	if a.Calibration == nil {
		return nil, fmt.Errorf("there is no %s beside the adapter %s; evict calibrate makes one", checkpoints.CalibrationFile, dir)
	}
	c, err := checkpoints.ParseCalibration(a.Calibration)
	if err != nil {
		return nil, fmt.Errorf("%s beside the adapter %s: %w", checkpoints.CalibrationFile, dir, err)
	}
	return c, nil
}

// errNotCalibrated is of a model, or a policy, that a calibration says nothing about.
var errNotCalibrated = errors.New("calibrated for another one")

// checkModel refuses another model than the calibrated one.
func (c *calibratedBudget) checkModel(ctx context.Context, m *model.Model) error {
	if c.read == nil {
		return nil
	}
	got, err := m.KnownAs(ctx, c.read.ModelSHA256)
	if err != nil {
		return err
	}
	if got != c.read.ModelSHA256 {
		return fmt.Errorf("--budget %s: model: %w: got %s with the weights %.12s…, want %s with %.12s…", c, errNotCalibrated, m.Name, got, c.read.ModelName, c.read.ModelSHA256)
	}
	return nil
}

// checkPolicy refuses another adapter, other options and other budgets of heads than the calibrated ones.
func (c *calibratedBudget) checkPolicy(ctx context.Context, m *engine.Model, p engine.Policy) error {
	if c.read == nil {
		return nil
	}
	fail := func(what, got, want string) error {
		return fmt.Errorf("--budget %s: policy %s: %s: %w: got %s, want %s", c, p.Title(), what, errNotCalibrated, got, want)
	}
	sum := func(text string) string {
		if text == "" {
			return "none"
		}
		return fmt.Sprintf("%.12s…", text)
	}
	if p.AdapterSHA256() != c.read.AdapterSHA256 {
		return fail("adapter", strings.TrimSpace(p.Adapter+" "+sum(p.AdapterSHA256())), strings.TrimSpace(c.read.Adapter+" "+sum(c.read.AdapterSHA256)))
	}
	values := p.Settings.Values()
	for _, name := range slices.Sorted(maps.Keys(c.read.Settings)) {
		if want, got := c.read.Settings[name], values[name]; got != want {
			return fail("option "+name, fmt.Sprint(got), fmt.Sprint(want))
		}
	}
	companions, err := m.Companions(ctx)
	if err != nil {
		return err
	}
	heads := ""
	for _, x := range companions {
		if x.File == engine.HeadsCompanion {
			heads = x.SHA256
		}
	}
	if heads != c.read.HeadsSHA256 {
		return fail(engine.HeadsCompanion, sum(heads), sum(c.read.HeadsSHA256))
	}
	return nil
}

// promise is what was certified, in words.
func (c *calibratedBudget) promise() string {
	l := eviction.Loss{Name: c.read.Loss, Clip: c.read.Clip}
	return fmt.Sprintf("an expected loss (%s) of at most %.4g %s with %.4g%% confidence, on prompts as those of %s", c.read.Loss, c.read.Epsilon, l.Unit(), 100*c.read.Confidence, c.read.Date)
}
