package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// parseServe is an error unless a container's command is one of evict serve with flags that exist and values that they take.
func parseServe(t *testing.T, command []string) {
	t.Helper()
	if len(command) < 2 || command[0] != "evict" || command[1] != "serve" {
		t.Fatalf("the container runs %q, want evict serve", command)
	}
	c := newServe()
	if err := c.ParseFlags(command[2:]); err != nil {
		t.Errorf("%q: %v", command, err)
	}
	if rest := c.Flags().Args(); len(rest) > 0 {
		t.Errorf("%q: arguments %q, want none", command, rest)
	}
}

// readYAML reads the only document of a file, or the next.
func readYAML(t *testing.T, d *yaml.Decoder, v any) bool {
	t.Helper()
	err := d.Decode(v)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return err == nil
}

func openYAML(t *testing.T, path string) *yaml.Decoder {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return yaml.NewDecoder(bytes.NewReader(data))
}

// TestCompose: the server's command is one, what is mounted is there, and Prometheus and Grafana read the services by their names.
func TestCompose(t *testing.T) {
	const dir = "../../docs/serving/compose"
	var compose struct {
		Services map[string]struct {
			Command, Volumes, Ports []string
			Image                   string
			Environment             map[string]string
		}
		Volumes map[string]any
	}
	readYAML(t, openYAML(t, dir+"/compose.yaml"), &compose)
	preset := regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)
	var command []string
	for _, word := range compose.Services["glimpse"].Command {
		command = append(command, preset.ReplaceAllString(word, "$1"))
	}
	parseServe(t, command)
	for name, s := range compose.Services {
		if s.Image == "" {
			t.Errorf("%s has no image", name)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: port %s is for others than this machine", name, port)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, named := compose.Volumes[from]; named {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, from)); err != nil {
				t.Errorf("%s mounts %s: %v", name, from, err)
			}
		}
	}
	var prometheus struct {
		Scrape []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, openYAML(t, dir+"/prometheus.yaml"), &prometheus)
	if got := prometheus.Scrape[0].Static[0].Targets[0]; got != "glimpse:8080" || !strings.Contains(strings.Join(command, " "), "--listen 0.0.0.0:8080 --allowed-hosts glimpse") {
		t.Errorf("Prometheus reads %s of %q", got, command)
	}
	var source struct{ Datasources []struct{ Type, URL string } }
	readYAML(t, openYAML(t, dir+"/datasource.yaml"), &source)
	if _, there := compose.Services["prometheus"]; !there || source.Datasources[0].Type != "prometheus" || source.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("Grafana reads %+v", source)
	}
}

// TestKubernetes: the server's command is one; mounts, ports and selectors name what there is; the server has less grace than the pod.
func TestKubernetes(t *testing.T) {
	type probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
	type object struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Selector any
			Ports    []struct {
				TargetPort string `yaml:"targetPort"`
			}
			Template struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					Grace      int `yaml:"terminationGracePeriodSeconds"`
					Containers []struct {
						Args  []string
						Ports []struct {
							Name          string
							ContainerPort int `yaml:"containerPort"`
						}
						Resources struct {
							Limits map[string]string
						}
						Startup   probe `yaml:"startupProbe"`
						Readiness probe `yaml:"readinessProbe"`
						Liveness  probe `yaml:"livenessProbe"`
						Mounts    []struct {
							Name string
							Path string `yaml:"mountPath"`
						} `yaml:"volumeMounts"`
					}
					Volumes []struct {
						Name  string
						Claim struct {
							Name string `yaml:"claimName"`
						} `yaml:"persistentVolumeClaim"`
					}
				}
			}
		}
	}
	all := make(map[string]object)
	d := openYAML(t, "../../docs/serving/kubernetes.yaml")
	for {
		var o object
		if !readYAML(t, d, &o) {
			break
		}
		all[o.Kind] = o
	}
	pod := all["Deployment"].Spec.Template
	c := pod.Spec.Containers[0]
	parseServe(t, c.Args)
	args := strings.Join(c.Args, " ")
	if c.Resources.Limits["memory"] == "" || pod.Spec.Grace != 40 || !strings.Contains(args, "--drain 30s") {
		t.Errorf("limits %v, grace %d s, %s", c.Resources.Limits, pod.Spec.Grace, args)
	}
	if c.Ports[0].Name != "http" || c.Ports[0].ContainerPort != 8080 || !strings.Contains(args, "--listen 0.0.0.0:8080") || all["Service"].Spec.Ports[0].TargetPort != "http" {
		t.Errorf("ports %+v and %+v, %s", c.Ports, all["Service"].Spec.Ports, args)
	}
	for _, p := range []probe{c.Startup, c.Readiness, c.Liveness} {
		if p.HTTPGet.Path != "/health" || p.HTTPGet.Port != "http" {
			t.Errorf("probe %+v", p)
		}
	}
	volumes := make(map[string]bool)
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
		if v.Claim.Name != "" && v.Claim.Name != all["PersistentVolumeClaim"].Metadata.Name {
			t.Errorf("volume %s claims %s", v.Name, v.Claim.Name)
		}
	}
	paths := ""
	for _, m := range c.Mounts {
		paths += m.Path + " "
		if !volumes[m.Name] {
			t.Errorf("mount %s has no volume", m.Name)
		}
	}
	if !strings.Contains(paths, "/keys ") || !strings.Contains(args, "--keys /keys/keys.txt") {
		t.Errorf("mounts %s, %s", paths, args)
	}
	if pod.Metadata.Labels["app"] != "glimpse" || all["Service"].Spec.Selector.(map[string]any)["app"] != "glimpse" {
		t.Errorf("labels %v, selector %v", pod.Metadata.Labels, all["Service"].Spec.Selector)
	}
}
