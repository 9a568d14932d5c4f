package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/bytesize"
	"glimpse/internal/cli"
	"glimpse/internal/hostmemory"
	"glimpse/internal/listing"
	"glimpse/model"
	"glimpse/model/catalog"
	"glimpse/model/hub"
	"glimpse/serving"
)

// tellLossy says that answers may differ from the model's own, and for what prompts, where the operator has chosen so.
func tellLossy(log *slog.Logger, policy string, budget eviction.Budget) {
	if policy != engine.Lossless {
		log.Warn("lossy: a part of every prompt's cache is evicted or not read, so that answers may differ from those of the full cache",
			"policy", policy, "budget", budget.String(), "from_tokens", budget.Whole(), "change", "--policy "+engine.Lossless+" keeps everything, --full-below all of shorter prompts")
	}
}

// tellLossless says that nothing is evicted, and with which policy the model would be.
func tellLossless(log *slog.Logger, m *engine.Model, policy engine.Policy, budget eviction.Budget) {
	if policy.Title() != engine.Lossless {
		return
	}
	other, from := m.DefaultPolicy()
	why := "--adapter has one for the model"
	switch {
	case other == engine.WithoutAdapter:
		why = "there is no adapter for the model"
	case from == engine.Shipped:
		why = "an adapter for the model comes with this program"
	case from != "":
		why = from + " has an adapter for the model"
	}
	log.Info("lossless: every session keeps its whole cache", "policy", engine.Lossless, "evict", fmt.Sprintf("--policy %s --budget %v", other, &budget), "why", why)
}

// promise makes what was certified of the budget the server's, and says how it is watched.
func (s *serveCommand) promise(m *engine.Model, policy engine.Policy, given cli.Given) error {
	read, log := s.calibrated.read, s.config.Log
	if read == nil {
		if given.Given("on-breach") {
			return fmt.Errorf("--on-breach %s: nothing is promised, want --budget %s:FILE with it", s.config.OnBreach, byCalibration)
		}
		return nil
	}
	if err := s.calibrated.checkPolicy(context.Background(), m, policy); err != nil {
		return err
	}
	p := &eviction.Promise{Loss: eviction.Loss{Name: read.Loss, Clip: read.Clip}, Epsilon: read.Epsilon, Confidence: read.Confidence}
	if err := p.Check(); err != nil {
		return fmt.Errorf("--budget %s: %w", &s.calibrated, err)
	}
	s.config.Promise = p
	log.Info("calibrated: "+s.calibrated.promise(), "policy", policy.NameWithAdapter(), "budget", read.Budget, "documents", read.Documents)
	switch {
	case !serving.Watchable(p.Loss):
		log.Warn("the promise is not watched: live traffic has no reference answers for the loss accuracy; calibrate with --loss nll or agreement to have it watched")
	case s.config.VerifyShare == 0:
		log.Warn("the promise is not watched: --verify-share SHARE watches it on so many of the requests")
	default:
		log.Info("the promise is watched", "share", s.config.VerifyShare, "loss", read.Loss, "on_breach", s.config.OnBreach)
	}
	return nil
}

// ofEviction are flags that say what is done with answers of evicted caches.
var ofEviction = []string{"full-below", "verify-share", "shadow", "shadow-share"}

// tellIdle names flags that nothing comes of, where nothing is evicted, until a request names a policy.
func tellIdle(log *slog.Logger, policy string, given func(flag string) bool) {
	var idle []string
	for _, flag := range ofEviction {
		if policy == engine.Lossless && given(flag) {
			idle = append(idle, "--"+flag)
		}
	}
	if len(idle) > 0 {
		log.Warn("nothing comes of these flags but for requests that name a policy: without --policy nothing is evicted", "flags", strings.Join(idle, ", "))
	}
}

// servedName is what requests call a model: by the short name that it was asked for, or else by its file or folder.
func servedName(spec, name string) (string, error) {
	entry, err := hub.Named(spec)
	if err != nil {
		return "", err
	}
	if entry != nil {
		return entry.Name, nil
	}
	return strings.TrimSuffix(filepath.Base(name), ".gguf"), nil
}

// tellModels says which models have short names where none is given: the built-in one knows few words.
func tellModels(log *slog.Logger, spec string) {
	if spec != "" {
		return
	}
	models, err := catalog.Read()
	if err != nil {
		log.Warn("names of models", "because", err)
		return
	}
	names := listing.Map(models, func(e catalog.Entry) string {
		if e.Bytes == 0 {
			return e.Name
		}
		return e.Name + " (" + bytesize.FormatSize(e.Bytes) + ")"
	})
	log.Warn("the built-in model is a test bed that knows few words: --model NAME fetches and serves another", "names", strings.Join(names, ", "), "more", "evict list, and org/name of the Hugging Face hub")
}

// urlOf is where a browser on this machine finds the server.
func urlOf(address net.Addr, tls bool) string {
	u := url.URL{Scheme: "http", Host: address.String()}
	if tls {
		u.Scheme = "https"
	}
	if host, port, err := net.SplitHostPort(u.Host); err == nil {
		switch ip := net.ParseIP(host); {
		case ip == nil || !ip.IsUnspecified():
		case ip.To4() != nil:
			u.Host = net.JoinHostPort("127.0.0.1", port)
		default: // of both versions, where the system has both
			u.Host = net.JoinHostPort("localhost", port)
		}
	}
	return u.String()
}

// roomFor is the memory beside the weights and what the server takes of it besides, less a tenth, and what it follows from; 0
// where it is not known.
func roomFor(m *model.Model, c serving.Config) (bytes int64, why string, err error) {
	var host hostmemory.Room
	available, ok := m.Available(func() int64 {
		host = hostmemory.Find()
		return host.Available
	})
	if !ok {
		return 0, "the free memory is not known: there is no limit", nil
	}
	why = bytesize.FormatMemory(available) + " free of device " + m.DeviceName()
	if host.Available > 0 { // where requests are, too, and mapped weights count as free
		mapped := m.MappedBytes()
		c.Memory = max(1, available-mapped)
		beside := c.Beside() + leastGarbage
		why = fmt.Sprintf("%v, less %s of weights and %s for requests", host, bytesize.FormatMemory(mapped), bytesize.FormatMemory(beside))
		available -= mapped + beside
	}
	if available -= available / 10; available <= 0 {
		return 0, "", fmt.Errorf("%w: %s leaves none for sessions; --memory SIZE takes so much of it all the same", model.ErrMemory, why)
	}
	return available, why + ", less a tenth", nil
}
