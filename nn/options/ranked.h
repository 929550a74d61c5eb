// Names of options for one, two and three dimensions.
#pragma once

/// Name1dOptions is Template<1>, and so for 2 and 3.
#define HALFTAPE_RANKED_OPTIONS(Name, Template) \
  using Name##1dOptions = Template<1>;          \
  using Name##2dOptions = Template<2>;          \
  using Name##3dOptions = Template<3>
