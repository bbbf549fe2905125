# The three images, each for both architectures in one OCI index:
#
#   docker buildx bake -f images/docker-bake.hcl        (from the repository's root)
#
# What goes into them must lie in out/stage first, compiled on the build machine
# (`cargo run -p podcradle-images -- stage`): no compiler runs under emulation.

variable "REPOSITORY" {
  description = "What the images' names begin with"
  default     = "localhost/podcradle"
}

variable "TAG" {
  description = "The tag of all three"
  default     = "dev"
}

variable "PLATFORMS" {
  description = "Comma-separated; one alone gives a plain image where an index is not wanted"
  default     = "linux/amd64,linux/arm64"
  validation {
    condition     = length([for p in split(",", PLATFORMS) : p if !contains(["linux/amd64", "linux/arm64"], p)]) == 0
    error_message = "PLATFORMS must be linux/amd64, linux/arm64 or both, separated by a comma."
  }
}

variable "BASE" {
  description = "The Debian under the sandbox: docker-image://REF, or target:rootfs where no registry is reachable"
  default     = "docker-image://debian:trixie-slim"
  validation {
    condition     = BASE == "target:rootfs" || can(regex("^docker-image://[^ ]+$", BASE))
    error_message = "BASE must be docker-image://REF or target:rootfs."
  }
}

variable "EXPORT" {
  description = "archive: an OCI archive a target in ARCHIVES; registry: push; image: into the builder's own image store, unpacked"
  default     = "archive"
  validation {
    condition     = contains(["archive", "registry", "image"], EXPORT)
    error_message = "EXPORT must be archive, registry or image."
  }
}

variable "ARCHIVES" {
  description = "Where EXPORT=archive puts its archives"
  default     = "out/images"
}

variable "SOURCE_DATE_EPOCH" {
  description = "Seconds since 1970, the commit's: every timestamp in an image"
  default     = "0"
  validation {
    condition     = can(regex("^[0-9]+$", SOURCE_DATE_EPOCH))
    error_message = "SOURCE_DATE_EPOCH must be whole seconds since 1970."
  }
}

variable "VERSION" {
  default = "0.1.0"
}

variable "REVISION" {
  description = "The commit"
  default     = ""
}

variable "SOURCE" {
  description = "Where the source is to be found: an http, https or ssh URL; EXPORT=registry wants one"
  default     = ""
  validation {
    condition     = SOURCE == "" || can(regex("^(https?|ssh)://[^ ]+$", SOURCE))
    error_message = "SOURCE must be an http, https or ssh URL."
  }
  validation {
    condition     = SOURCE != "" || EXPORT != "registry"
    error_message = "SOURCE must say where the source is to be found, as a URL, when EXPORT is registry."
  }
}

function "description" {
  params = [name]
  result = {
    supervisor = "podcradle-init: PID 1 for a sandbox, alone in its image"
    sandbox    = "Podcradle's reference host image: Debian, git, podcradle-init and host"
    launcher   = "podcradle: launches sandboxes in Kubernetes pods and leaves nothing behind"
  }[name]
}

function "about" {
  params = [name]
  result = { for key, value in {
    title       = "podcradle-${name}"
    description = description(name)
    version     = VERSION
    revision    = REVISION
    source      = SOURCE
    licenses    = "Apache-2.0"
    created     = timeadd("1970-01-01T00:00:00Z", "${SOURCE_DATE_EPOCH}s")
  } : "org.opencontainers.image.${key}" => value if value != "" }
}

# An index has no configuration, so what a label says is also an annotation.
# One platform alone has no index.
function "annotations" {
  params = [name]
  result = [
    for key, value in about(name) :
    "${length(split(",", PLATFORMS)) > 1 ? "index,manifest" : "manifest"}:${key}=${value}"
  ]
}

# One platform alone is what `docker load` takes, and it is an OCI archive as well.
function "archive" {
  params = [name]
  result = length(split(",", PLATFORMS)) > 1 ? "type=oci,dest=${ARCHIVES}/${name}.tar" : "type=docker,dest=${ARCHIVES}/${name}-${trimprefix(PLATFORMS, "linux/")}.tar"
}

# An attestation holds the time of its build, and an index that holds one has
# another digest each time.
function "attest" {
  params = []
  result = ["type=provenance,disabled=true"]
}

# A store that unpacks has the layers as they are; the others carry SOURCE_DATE_EPOCH.
function "output" {
  params = [name]
  result = {
    archive  = ["${archive(name)},rewrite-timestamp=true"]
    registry = ["type=registry,rewrite-timestamp=true"]
    image    = ["type=image,unpack=true"]
  }[EXPORT]
}

group "default" {
  targets = ["supervisor", "sandbox", "launcher"]
}

target "supervisor" {
  context     = "out/stage/supervisor"
  dockerfile  = "../../../images/supervisor/Dockerfile"
  platforms   = split(",", PLATFORMS)
  args        = { SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH }
  tags        = ["${REPOSITORY}/supervisor:${TAG}"]
  labels      = about("supervisor")
  annotations = annotations("supervisor")
  attest      = attest()
  output      = output("supervisor")
}

target "launcher" {
  context     = "out/stage/launcher"
  dockerfile  = "../../../images/launcher/Dockerfile"
  platforms   = split(",", PLATFORMS)
  args        = { SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH }
  tags        = ["${REPOSITORY}/launcher:${TAG}"]
  labels      = about("launcher")
  annotations = annotations("launcher")
  attest      = attest()
  output      = output("launcher")
}

target "sandbox" {
  context     = "images/sandbox"
  contexts    = { debian = BASE, bin = "out/stage/sandbox" }
  platforms   = split(",", PLATFORMS)
  args        = { SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH }
  tags        = ["${REPOSITORY}/sandbox:${TAG}"]
  labels      = about("sandbox")
  annotations = annotations("sandbox")
  attest      = attest()
  output      = output("sandbox")
}

# dpkg's own list of what the sandbox holds, for its bill of materials.
target "sandbox-packages" {
  inherits    = ["sandbox"]
  target      = "packages"
  tags        = []
  annotations = []
  output      = ["type=local,dest=out/packages"]
}

# Debian without a registry: a tree for each architecture, made beforehand
# (`cargo run -p podcradle-images -- rootfs`).
target "rootfs" {
  context    = "out/rootfs"
  dockerfile = "../../images/rootfs/Dockerfile"
  platforms  = split(",", PLATFORMS)
  attest     = attest()
  output     = ["type=cacheonly"]
}
